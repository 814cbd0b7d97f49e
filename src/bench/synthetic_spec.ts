/** How a synthetic model is asked for. */
import { ForgeError } from "../errors.ts";
import { readJsonObject } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import { type ConfigSpec, wantedTensors } from "./synthetic_checkpoint.ts";
import { CONFIGS, SYNTHETIC_NAMES } from "./synthetic_configs.ts";
import {
  DEFAULT_TYPE,
  fitsShape,
  SHAPES,
  type ShapeSpec,
  SYNTHETIC_TYPES,
  type SyntheticType,
} from "./synthetic_shapes.ts";

/** A model to be made up: of a shape, which GGUF can hold, or of any configuration. */
export type SyntheticSpec = ShapeSpec | ConfigSpec;

/**
 * Reads `NAME`, `NAME:TYPE`, `path/to/config.json` or `path/to/config.json:TYPE`; of names and types,
 * case does not matter.
 *
 * @throws {ForgeError} `usage` for an unknown name or type, or a type whose blocks do not fit the
 * shape's rows; as loading a model for a config.json that is missing, damaged or not supported.
 */
export function parseSyntheticSpec(text: string): SyntheticSpec {
  const [, named = "", typeName = DEFAULT_TYPE] = /^(.*?)(?::([^:/]*))?$/s.exec(text) ?? [];
  const type = SYNTHETIC_TYPES.find((type) => type === typeName.toUpperCase());
  if (named.endsWith(".json")) return configSpec(named, readJsonObject(named), type, typeName);
  const name = named.toLowerCase();
  const config = Object.hasOwn(CONFIGS, name) ? CONFIGS[name] : undefined;
  if (config !== undefined) return configSpec(name, config, type, typeName);
  const shape = Object.hasOwn(SHAPES, name) ? SHAPES[name] : undefined;
  if (shape === undefined) {
    throw new ForgeError(
      "usage",
      `--synthetic knows no shape ${quote(named)}; valid are ${
        SYNTHETIC_NAMES.join(", ")
      }, or the ` +
        `path of a config.json`,
    );
  }
  const fitting = SYNTHETIC_TYPES.filter((type) => fitsShape(type, shape));
  if (type === undefined || !fitting.includes(type)) {
    const problem = type === undefined
      ? `--synthetic knows no type ${quote(typeName)}`
      : `--synthetic: the rows of ${name} are no whole number of ${type}'s blocks`;
    throw new ForgeError("usage", `${problem}; valid for it are ${fitting.join(", ")}`);
  }
  return { name: `${name}:${type}`, shape, type };
}

function configSpec(
  name: string,
  config: ConfigSpec["config"],
  type: SyntheticType | undefined,
  typeName: string,
): ConfigSpec {
  if (type === undefined) {
    throw new ForgeError(
      "usage",
      `--synthetic knows no type ${quote(typeName)}; valid are ${SYNTHETIC_TYPES.join(", ")}`,
    );
  }
  const spec = { name: `${name}:${type}`, config, type };
  // What is wrong with the configuration is said now, and not after other models were measured.
  wantedTensors(spec);
  return spec;
}
