import { ForgeError } from "../../errors.ts";
import { isJsonObject, type JsonObject, type JsonValue, kindOf } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import { checkKeywords } from "./keywords.ts";
import { wrong } from "./keywords.ts";

/** A subschema and its location. */
export interface Schema {
  /** `true` and `{}` allow everything, `false` nothing. */
  readonly keywords: JsonObject | boolean;
  /** A JSON pointer as a fragment: "#/properties/name". */
  readonly path: string;
}

/** Reads the subschemas of one document. */
export class SchemaReader {
  readonly root: Schema;
  readonly #checked = new Set<string>();

  constructor(document: JsonValue) {
    this.root = asSchema(document, "#");
  }

  /** Returns the keywords of a schema, after checking that all can be enforced. */
  keywords(schema: Schema): JsonObject {
    if (typeof schema.keywords === "boolean") return {};
    if (!this.#checked.has(schema.path)) {
      checkLimit("the nesting of the schema", schema.path.split("/").length, LIMITS.nesting);
      checkKeywords(schema.keywords, schema.path);
      this.#checked.add(schema.path);
    }
    return schema.keywords;
  }

  /** Returns the subschema under a keyword, if present. */
  child(schema: Schema, ...keys: (string | number)[]): Schema | undefined {
    let value: JsonValue | undefined = typeof schema.keywords === "boolean" ? {} : schema.keywords;
    let path = schema.path;
    for (const key of keys) {
      value = isJsonObject(value)
        ? Object.hasOwn(value, key) ? value[key] : undefined
        : Array.isArray(value)
        ? value[Number(key)]
        : undefined;
      path += `/${escapePointer(String(key))}`;
    }
    return value === undefined ? undefined : asSchema(value, path);
  }

  /** Returns the subschemas of an array under a keyword. */
  children(schema: Schema, keyword: string): Schema[] {
    const list = this.keywords(schema)[keyword];
    if (list === undefined) return [];
    if (!Array.isArray(list)) {
      throw wrong(schema.path, keyword, list, "an array of schemas");
    }
    return list.map((value, i) => asSchema(value, `${schema.path}/${keyword}/${i}`));
  }

  /** Returns the names and subschemas of an object under a keyword. */
  named(schema: Schema, keyword: string): [string, Schema][] {
    const object = this.keywords(schema)[keyword];
    if (object === undefined) return [];
    if (!isJsonObject(object)) throw wrong(schema.path, keyword, object, "an object of schemas");
    return Object.entries(object).map(([name, value]) => [
      name,
      asSchema(value ?? null, `${schema.path}/${keyword}/${escapePointer(name)}`),
    ]);
  }

  /** Returns the schema that `$ref` refers to. */
  resolve(schema: Schema): Schema | undefined {
    const ref = this.keywords(schema)["$ref"];
    if (ref === undefined) return undefined;
    const isLocal = typeof ref === "string" && (ref === "#" || ref.startsWith("#/"));
    if (!isLocal) {
      throw wrong(schema.path, "$ref", ref, `a pointer into the schema, such as "#/$defs/x"`);
    }
    const keys = ref.split("/").slice(1).map((key) => {
      try {
        return decodeURIComponent(key).replaceAll("~1", "/").replaceAll("~0", "~");
      } catch {
        throw wrong(schema.path, "$ref", ref, "a pointer with valid percent-encoding");
      }
    });
    const found = this.child(this.root, ...keys);
    if (found === undefined) {
      throw wrong(schema.path, "$ref", ref, "a pointer to an existing schema");
    }
    return found;
  }
}

function asSchema(value: JsonValue, path: string): Schema {
  if (typeof value === "boolean" || isJsonObject(value)) return { keywords: value, path };
  throw new ForgeError(
    "usage",
    `JSON schema: ${quote(path)} is ${kindOf(value)}; valid is an object, true or false`,
  );
}

function escapePointer(key: string): string {
  return encodeURI(key.replaceAll("~", "~0").replaceAll("/", "~1"));
}
