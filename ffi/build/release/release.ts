/**
 * Prepares the files of a release: checks the packed packages, and writes their checksums, a bill
 * of materials and the installers. Needs no network. Run by the workflow `release`.
 */
import { createHash } from "node:crypto";
import { basename, join } from "node:path";
import { gunzipSync } from "node:zlib";
import config from "../../../deno.json" with { type: "json" };
import { runCommand } from "../command.ts";
import { ForgeError } from "../../../src/errors.ts";
import { platformName } from "../targets.ts";
import { DENO_VERSION, libraryPackages, NAME } from "./pack_npm.ts";

/** A file of the release. */
interface ReleaseFile {
  readonly path: string;
  readonly sha256: string;
}

/** Options of `prepareRelease`. */
interface ReleaseOptions {
  /**
   * Folder with archives and programs, and the npm packages in `npm/`; receives the other files.
   */
  readonly folder: string;
  /** Address of the folder that the release is downloaded from, for the installers. */
  readonly address: string;
  /** Requires the packages and archives of all platforms, and that the version is this tag's. */
  readonly tag?: string | undefined;
}

function filesIn(folder: string, pattern: RegExp): string[] {
  return Array.from(Deno.readDirSync(folder), ({ name }) => name)
    .filter((name) => pattern.test(name)).sort().map((name) => join(folder, name));
}

/** Reads package.json of a packed package: the entries of the archive are sorted by name. */
function readManifest(path: string): { name: string; version: string } {
  const bytes = gunzipSync(Deno.readFileSync(path));
  const decoder = new TextDecoder();
  for (let at = 0; at < bytes.length;) {
    const name = decoder.decode(bytes.subarray(at, at + 100)).replace(/\0.*$/s, "");
    const size = parseInt(decoder.decode(bytes.subarray(at + 124, at + 135)), 8);
    const content = bytes.subarray(at + 512, at + 512 + size);
    if (name === "package/package.json") return JSON.parse(decoder.decode(content));
    at += 512 * (1 + Math.ceil(size / 512));
  }
  throw new ForgeError("bad_model", `${path} contains no package/package.json`);
}

function checkPackages(paths: readonly string[], tag: string | undefined): void {
  const found = new Map(paths.map((path) => [readManifest(path).name, readManifest(path).version]));
  const wanted = tag === undefined ? [NAME] : [NAME, ...libraryPackages.map(({ name }) => name)];
  const missing = wanted.filter((name) => !found.has(name));
  if (missing.length > 0) {
    throw new ForgeError("not_found", `these packages are missing: ${missing.join(", ")}`);
  }
  for (const [name, version] of found) {
    if (version === config.version) continue;
    throw new ForgeError("usage", `${name} has version ${version}, not ${config.version}`);
  }
  if (tag !== undefined && tag !== `v${config.version}`) {
    throw new ForgeError("usage", `the tag is "${tag}", and the version is ${config.version}`);
  }
}

/** Checks that the folder has an archive for every platform that `install.sh` installs on. */
function checkArchives(folder: string): void {
  const platforms = libraryPackages.map(({ platform }) => platform)
    .filter(({ os }) => os !== "windows");
  const wanted = new Set(platforms.map((each) => `forge-${platformName(each)}.tar.gz`));
  for (const path of filesIn(folder, /\.tar\.gz$/)) wanted.delete(basename(path));
  if (wanted.size === 0) return;
  throw new ForgeError("not_found", `these archives are missing: ${[...wanted].join(", ")}`);
}

function sha256(path: string): string {
  return createHash("sha256").update(Deno.readFileSync(path)).digest("hex");
}

/** Returns the bill of materials in the format of SPDX 2.3: the files, and what they contain. */
function billOfMaterials(files: readonly ReleaseFile[], time: string): unknown {
  const contained = [
    ["deno", DENO_VERSION],
    ...Object.values(config.imports)
      .flatMap((target) => {
        const [, name, version] = /^npm:(.+)@([\d.]+)$/.exec(target) ?? [];
        return name === undefined ? [] : [[name, version]];
      }),
  ];
  const id = (name: string) => `SPDXRef-${name.replace(/[^A-Za-z0-9.]+/g, "-")}`;
  const packages = [
    ...files.map(({ path, sha256 }) => ({
      name: basename(path),
      SPDXID: id(basename(path)),
      versionInfo: config.version,
      downloadLocation: "NOASSERTION",
      licenseDeclared: config.license,
      checksums: [{ algorithm: "SHA256", checksumValue: sha256 }],
    })),
    ...contained.map(([name, version]) => ({
      name,
      SPDXID: id(name!),
      versionInfo: version,
      downloadLocation: "NOASSERTION",
      licenseDeclared: "MIT",
      externalRefs: [{
        referenceCategory: "PACKAGE-MANAGER",
        referenceType: "purl",
        referenceLocator: `pkg:npm/${name!.replace("@", "%40")}@${version}`,
      }],
    })),
  ];
  return {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: `${NAME}-${config.version}`,
    documentNamespace: `urn:${NAME}:${config.version}:${files[0]?.sha256}`,
    creationInfo: { created: time, creators: ["Tool: ffi/build/release/release.ts"] },
    packages,
    relationships: files.flatMap(({ path }) => [
      {
        spdxElementId: "SPDXRef-DOCUMENT",
        relationshipType: "DESCRIBES",
        relatedSpdxElement: id(basename(path)),
      },
      ...contained.map(([name]) => ({
        spdxElementId: id(basename(path)),
        relationshipType: "DEPENDS_ON",
        relatedSpdxElement: id(name!),
      })),
    ]),
  };
}

/**
 * Prepares a release. Writes `SHA256SUMS`, `sbom.spdx.json`, `install.sh` and `install.ps1`.
 *
 * @throws {ForgeError} `not_found` for a missing package or archive, `usage` for another version
 */
export function prepareRelease({ folder, address, tag }: ReleaseOptions): void {
  const packages = filesIn(join(folder, "npm"), /\.tgz$/);
  checkPackages(packages, tag);
  if (tag !== undefined) checkArchives(folder);
  const files = [...filesIn(folder, /^forge-\w+-\w+(\.tar\.gz|\.exe)?$/), ...packages]
    .map((path) => ({ path, sha256: sha256(path) }));
  const write = (name: string, text: string) => Deno.writeTextFileSync(join(folder, name), text);
  write(
    "SHA256SUMS",
    files.map((file) => `${file.sha256}  ${basename(file.path)}\n`).join(""),
  );
  const time = new Date().toISOString().replace(/\.\d+Z$/, "Z");
  write("sbom.spdx.json", `${JSON.stringify(billOfMaterials(files, time), undefined, 2)}\n`);
  for (const name of ["install.sh", "install.ps1"]) {
    const text = Deno.readTextFileSync(join(import.meta.dirname!, name));
    write(name, text.replace("@RELEASE@", address));
  }
}

const help = `Usage: deno run -A ffi/build/release/release.ts FOLDER ADDRESS [TAG]

Checks the packages in FOLDER and FOLDER/npm, and writes checksums, a bill of materials and installers
for a release that is downloaded from ADDRESS.
`;

function main([folder, address, tag]: string[]): Promise<void> {
  if (folder === undefined || address === undefined) throw new ForgeError("usage", help.trimEnd());
  prepareRelease({ folder, address, tag });
  return Promise.resolve();
}

if (import.meta.main) await runCommand(main);
