/** Parser of `--synthetic`. */
import { ForgeError } from "../../errors.ts";
import { readJsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import { type ConfigSpec, wantedTensors } from "./checkpoint.ts";
import { CONFIGS, SYNTHETIC_NAMES } from "./shapes.ts";
import {
  DEFAULT_TYPE,
  fitsShape,
  SHAPES,
  type ShapeSpec,
  SYNTHETIC_TYPES,
  type SyntheticType,
} from "./shapes.ts";

/** A synthetic model: a shape, which GGUF can represent, or any configuration. */
export type SyntheticSpec = ShapeSpec | ConfigSpec;

/**
 * Parses `NAME`, `NAME:TYPE`, `path/to/config.json` or `path/to/config.json:TYPE`. Names and types
 * are case-insensitive.
 *
 * @throws {ForgeError} `usage` for an unknown name or type, or a type whose blocks do not divide
 * the shape's rows; as loading a model for a config.json that is missing, damaged or unsupported
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
      `--synthetic: unknown shape ${quote(named)}; valid are ${
        SYNTHETIC_NAMES.join(", ")
      }, or the ` +
        `path of a config.json`,
    );
  }
  const fitting = SYNTHETIC_TYPES.filter((type) => fitsShape(type, shape));
  if (type === undefined || !fitting.includes(type)) {
    const problem = type === undefined
      ? `--synthetic: unknown type ${quote(typeName)}`
      : `--synthetic: the rows of ${name} are not whole numbers of blocks of ${type}`;
    throw new ForgeError("usage", `${problem}; valid are ${fitting.join(", ")}`);
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
      `--synthetic: unknown type ${quote(typeName)}; valid are ${SYNTHETIC_TYPES.join(", ")}`,
    );
  }
  const spec = { name: `${name}:${type}`, config, type };
  // Report a wrong configuration now, not after other models were measured.
  wantedTensors(spec);
  return spec;
}
