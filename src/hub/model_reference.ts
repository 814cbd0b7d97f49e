import { ForgeError } from "../errors.ts";

/** The hubs, with the revision of a name without one. */
const HUBS = { huggingface: "main", modelscope: "master" } as const;

/** Name of a hub. */
export type HubName = keyof typeof HUBS;

/**
 * A model on a hub: `org/name` or `org/name:FILE-OR-QUANTIZATION`, either with `@revision`; a name on
 * ModelScope begins with `modelscope:`.
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

/** Returns the pattern of addresses of pages and files of a model, as browsers show them. */
function addresses(site: string, views: string): RegExp {
  const file = `(?:${views})/(?<revision>${PART})(?:/(?<file>[^?#]+))?`;
  return new RegExp(`^(?:https?://)?(?:www\\.)?${site}/${REPOSITORY}(?:/${file})?/?(?:[?#].*)?$`);
}

const ADDRESSES: Readonly<Record<HubName, RegExp>> = {
  huggingface: addresses("(?:huggingface\\.co|hf\\.co)", "tree|blob|resolve"),
  modelscope: addresses("modelscope\\.cn/models", "tree|resolve|file/view"),
};

/** Returns the name of a model for its address on a hub, else the text. */
export function hubName(text: string): string {
  // A selector may follow the name of a repository: hf.co/org/name:Q4_K_M.
  const [, whole = text, selector = ""] = /^(.+\/[^:/]+)(:[^:/]+)$/.exec(text) ?? [];
  // Tabs of ModelScope's page.
  const address = whole.replace(
    /(modelscope\.cn\/models\/[^/]+\/[^/]+)\/(?:summary|files)\b/,
    "$1",
  );
  for (const [hub, defaultRevision] of Object.entries(HUBS)) {
    const groups = ADDRESSES[hub as HubName].exec(address)?.groups;
    if (groups === undefined) continue;
    const { repository, revision = defaultRevision, file } = groups;
    const prefix = hub === "modelscope" ? "modelscope:" : "";
    const at = revision === defaultRevision ? "" : `@${revision}`;
    const isModelFile = file !== undefined && /\.gguf$/i.test(file);
    const end = isModelFile ? `:${decodeURIComponent(file)}` : selector;
    return `${prefix}${repository}${at}${end}`;
  }
  return text;
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
    revision: groups.revision ?? HUBS[hub],
    selector: groups.selector,
  };
}
