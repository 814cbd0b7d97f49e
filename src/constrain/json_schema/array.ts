import { choice, type Expression, NOTHING, sequence, text } from "../grammar/grammar.ts";
import { checkLimit } from "../limits.ts";
import type { SchemaCompiler } from "./compile.ts";
import type { Conjunction } from "./conjunction.ts";
import { numbersOf } from "./scalars.ts";
import { refused } from "./keywords.ts";
import type { Schema } from "./schema.ts";

const MOST_ITEMS = 5_000;

/**
 * Compiles arrays. After `prefixItems`, more items are generated only if `items` is given. Without
 * both, items are any values.
 */
export function compileArray(compiler: SchemaCompiler, base: Conjunction): Expression {
  const { grammar, reader } = compiler;
  const keywords = base.map((schema) => reader.keywords(schema));
  const prefixes = base.map((schema) => reader.children(schema, "prefixItems"));
  const rests = base.map((schema) => reader.child(schema, "items"));
  const prefixLength = Math.max(0, ...prefixes.map((prefix) => prefix.length));
  const isClosed = rests.some((rest) => rest?.keywords === false) ||
    (prefixLength > 0 && rests.every((rest) => rest === undefined));
  const min = Math.max(0, ...numbersOf(keywords, "minItems"));
  const max = Math.min(...numbersOf(keywords, "maxItems"), isClosed ? prefixLength : Infinity);
  const unique = base.find((schema) => reader.keywords(schema)["uniqueItems"] === true);
  if (unique !== undefined && max > 1) {
    throw refused(unique.path, "uniqueItems", "cannot be enforced");
  }
  // Items from this index on are alike, so an unbounded list repeats from here.
  const last = max === Infinity ? Math.max(min, prefixLength) : max;
  checkLimit("the number of items that an array counts", last, MOST_ITEMS);

  const item = (index: number): Expression => {
    const schemas = base.flatMap((_, i): Schema[] => {
      const schema = prefixes[i]![index] ?? rests[i];
      return schema === undefined ? [] : [schema];
    });
    const value = compiler.value(schemas);
    return index === 0 ? value : sequence(compiler.comma, value);
  };
  const end = (count: number) => count >= min ? [text("]")] : [];
  let following: Expression = choice(...end(max));
  if (max === Infinity) {
    // The first item has no comma before it, so the repetition starts after it.
    const repeated = grammar.recursive((self) =>
      choice(...end(last), sequence(item(Math.max(1, last)), self))
    );
    following = last === 0 ? choice(...end(0), sequence(item(0), repeated)) : repeated;
  }
  for (let count = last - 1; count >= 0; count--) {
    following = grammar.rule(choice(...end(count), sequence(item(count), following)));
  }
  return sequence(text("["), following, NOTHING);
}
