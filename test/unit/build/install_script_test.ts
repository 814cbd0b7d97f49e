/** The installer of releases, against a server on this machine. */
import { assertEquals, assertMatch, assertStringIncludes, assertThrows } from "@std/assert";
import { join } from "@std/path";
import config from "../../../deno.json" with { type: "json" };
import { DENO_VERSION, libraryPackages, NAME } from "../../../ffi/build/release/pack_npm.ts";
import { prepareRelease } from "../../../ffi/build/release/release.ts";
import { hostPlatform, platformName } from "../../../ffi/build/targets.ts";
import { tar } from "../../../ffi/build/tar.ts";
import { ForgeError } from "../../../src/errors.ts";
import { ROOT } from "../../support/checkout.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { toolAvailable } from "./fake_tree.ts";

const name = `forge-${platformName(hostPlatform())}`;
const canInstall = Deno.build.os !== "windows" && await toolAvailable("curl") &&
  await toolAvailable("tar");

async function archiveOf(folder: TempFolder, version: string): Promise<Uint8Array<ArrayBuffer>> {
  Deno.mkdirSync(folder.at(name, "bin"), { recursive: true });
  const program = folder.at(name, "bin", "forge");
  Deno.writeTextFileSync(program, `#!/bin/sh\necho forge ${version}\n`, { mode: 0o755 });
  const archive = folder.at("archive");
  await new Deno.Command("tar", { args: ["-czf", archive, "-C", folder.path, name] }).output();
  return Deno.readFileSync(archive);
}

Deno.test({
  name: "install.sh: installs and replaces a version whose checksum is right, and no other",
  ignore: !canInstall,
  async fn() {
    using folder = new TempFolder();
    let archive = await archiveOf(folder, "1.0");
    let sums = "";
    const sign = async () => {
      const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", archive));
      sums = `${"0".repeat(64)}  other.tar.gz\n${digest.toHex()}  ${name}.tar.gz\n`;
    };
    await using server = Deno.serve(
      { hostname: "127.0.0.1", port: 0, onListen: () => {} },
      (request) => new Response(request.url.endsWith("SHA256SUMS") ? sums : archive),
    );
    const home = folder.at("home folder");
    Deno.mkdirSync(home);
    const install = async () => {
      const { code, stdout, stderr } = await new Deno.Command(
        join(ROOT, "ffi", "build", "release", "install.sh"),
        {
          clearEnv: true,
          env: {
            PATH: Deno.env.get("PATH") ?? "",
            HOME: home,
            FORGE_RELEASE: `http://127.0.0.1:${server.addr.port}`,
          },
        },
      ).output();
      const decoder = new TextDecoder();
      return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
    };
    const command = join(home, ".local", "bin", "forge");
    const installed = async () =>
      new TextDecoder().decode((await new Deno.Command(command).output()).stdout);

    await sign();
    const first = await install();
    assertEquals([first.code, first.stderr], [0, ""]);
    assertStringIncludes(first.stdout, `installed forge 1.0 as ${command}\n`);
    assertEquals(await installed(), "forge 1.0\n");

    archive = await archiveOf(folder, "2.0");
    const wrong = await install();
    assertEquals(wrong.code, 1);
    assertMatch(
      wrong.stderr,
      /^forge: error: the SHA-256 of \S+ is [0-9a-f]{64}, not [0-9a-f]{64}/,
    );
    assertEquals(await installed(), "forge 1.0\n");

    await sign();
    assertEquals((await install()).code, 0);
    assertEquals(await installed(), "forge 2.0\n");

    const files = join(home, ".local", "share", "forge");
    Deno.removeSync(join(files, "bin"), { recursive: true });
    Deno.writeTextFileSync(join(files, "notes.txt"), "mine");
    const foreign = await install();
    assertEquals(foreign.code, 1);
    assertStringIncludes(foreign.stderr, "has other files than forge's");
    assertEquals(Deno.readTextFileSync(join(files, "notes.txt")), "mine");
    Deno.removeSync(files, { recursive: true });

    sums = "";
    const missing = await install();
    assertEquals([missing.code, missing.stderr], [
      1,
      `forge: error: the release has no ${name}.tar.gz\n`,
    ]);
  },
});

Deno.test("a release of a tag has the packages and the archives of all platforms", async () => {
  using folder = new TempFolder();
  Deno.mkdirSync(folder.at("npm"));
  for (const { name } of [{ name: NAME }, ...libraryPackages]) {
    const manifest = JSON.stringify({ name, version: config.version });
    const content = new TextEncoder().encode(manifest);
    const archive = tar([{ path: "package/package.json", content, executable: false }]);
    const packed = ReadableStream.from(archive).pipeThrough(new CompressionStream("gzip"));
    const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
    folder.write(`npm/${name.replace("@", "").replace("/", "-")}.tgz`, bytes);
  }
  folder.write("forge-linux-x86_64.tar.gz", "");
  folder.write("forge-linux-aarch64.tar.gz", "");
  const release = { folder: folder.path, address: "https://releases.example" };
  const prepare = () => prepareRelease({ ...release, tag: `v${config.version}` });
  assertThrows(prepare, ForgeError, "archives are missing: forge-darwin-aarch64.tar.gz");
  folder.write("forge-darwin-aarch64.tar.gz", "");
  prepare();
  const sums = Deno.readTextFileSync(folder.at("SHA256SUMS")).trim().split("\n");
  assertEquals(sums.length, 3 + 1 + libraryPackages.length);
  const contents = JSON.parse(Deno.readTextFileSync(folder.at("sbom.spdx.json")));
  type Package = { name: string; SPDXID: string; versionInfo: string; checksums?: object[] };
  const packages: Package[] = contents.packages;
  const ids = packages.map(({ SPDXID }) => SPDXID);
  assertEquals(new Set(ids).size, ids.length);
  for (const { name, SPDXID } of packages) {
    assertEquals(SPDXID, `SPDXRef-${name.replaceAll(/[@/_]+/g, "-")}`);
  }
  const ofFiles = packages.filter(({ checksums }) => checksums !== undefined);
  assertEquals(
    ofFiles.map(({ name }) => name).toSorted(),
    sums.map((line) => line.split("  ")[1]).toSorted(),
  );
  const parts = packages.filter((each) => !ofFiles.includes(each));
  const { deno, marked } = Object.fromEntries(
    parts.map(({ name, versionInfo }) => [name, versionInfo]),
  );
  assertEquals([deno, `npm:marked@${marked}`], [DENO_VERSION, config.imports.marked]);
  const related = (id: string) =>
    contents.relationships
      .filter(({ spdxElementId }: { spdxElementId: string }) => spdxElementId === id)
      .map(({ relatedSpdxElement }: { relatedSpdxElement: string }) => relatedSpdxElement);
  assertEquals(related("SPDXRef-DOCUMENT"), ofFiles.map(({ SPDXID }) => SPDXID));
  for (const { SPDXID } of ofFiles) {
    assertEquals(related(SPDXID), parts.map((part) => part.SPDXID));
  }
});
