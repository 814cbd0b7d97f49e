/** Names of models on hubs. */
import { ForgeError } from "../errors.ts";
import { endpointOf, type Hub, type HubName, HUBS } from "./hubs.ts";

/**
 * A model on a hub: `org/name` or `org/name:FILE-OR-QUANTIZATION`, either with `@revision`; a name
 * on ModelScope begins with `modelscope:`.
 */
export interface ModelReference {
  readonly hub: HubName;
  /** `org/name` */
  readonly repository: string;
  /** Branch, tag or commit. */
  readonly revision: string;
  /** A file name, or part of one such as `Q4_K_M`. */
  readonly selector: string | undefined;
}

const PART = "[A-Za-z0-9][A-Za-z0-9._-]*";
const REPOSITORY = `(?<repository>${PART}/${PART})`;
const PATTERN = new RegExp(
  `^(?:(?<hub>modelscope):)?${REPOSITORY}(?:@(?<revision>${PART}))?(?::(?<selector>[^:]+))?$`,
);

/** Returns the name of a model for its address on a hub, as browsers show it, else the text. */
export function hubName(text: string): string {
  for (const hub of Object.values<Hub>(HUBS)) {
    const path = pathOnHub(text, hub);
    if (path === undefined) continue;
    const name = hub.prefix + (nameOfPage(path, hub) ?? path);
    if (PATTERN.test(name)) return name;
  }
  return text;
}

/** Returns what follows the address of a hub's models in an address. */
function pathOnHub(text: string, hub: Hub): string | undefined {
  const withoutScheme = (address: string) => address.replace(/^https?:\/\/(www\.)?|^www\./, "");
  const address = withoutScheme(text);
  const hosts = [hub.address, endpointOf(hub), ...(hub.shortHost ? [hub.shortHost] : [])];
  const start = hosts.map((host) => withoutScheme(host) + hub.modelsPath)
    .find((start) => address.startsWith(start));
  return start && address.slice(start.length).replace(/[?#].*$/, "").replace(/\/$/, "");
}

/** Returns the name of the model that a page of a hub shows, without the hub's prefix. */
function nameOfPage(path: string, { views, defaultRevision }: Hub): string | undefined {
  const view = `/(?:${views})/(?<revision>${PART})(?:/(?<file>[^:]+))?`;
  // ModelScope's pages have tabs. A selector may follow: hf.co/org/name:Q4_K_M.
  const page = new RegExp(`^${REPOSITORY}(?:/(?:summary|files)|${view})?(?<selector>:[^:]+)?$`);
  const groups = page.exec(path)?.groups;
  if (groups === undefined) return undefined;
  const { repository, revision = defaultRevision, file = "", selector = "" } = groups;
  const at = revision === defaultRevision ? "" : `@${revision}`;
  return `${repository}${at}${/\.gguf$/i.test(file) ? `:${decoded(file)}` : selector}`;
}

function decoded(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** True if a text has the form of a hub name. */
export function isModelReference(text: string): boolean {
  return PATTERN.test(text);
}

/** @throws {ForgeError} `usage` if the text is not a hub name */
export function parseModelReference(text: string): ModelReference {
  const groups = PATTERN.exec(text)?.groups;
  if (groups === undefined) {
    throw new ForgeError(
      "usage",
      `"${text}" is not a hub name; valid are org/name, org/name:FILE and org/name:QUANTIZATION, ` +
        `with @REVISION after the name and modelscope: before it, and addresses of models on ` +
        `huggingface.co and modelscope.cn`,
    );
  }
  const hub = groups.hub === undefined ? "huggingface" : "modelscope";
  return {
    hub,
    repository: groups.repository!,
    revision: groups.revision ?? HUBS[hub].defaultRevision,
    selector: groups.selector,
  };
}
