import type { JsonValue } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import {
  accepts,
  ANYTHING,
  type Automaton,
  intersect,
  isEmpty,
  subtract,
} from "../automata/automaton.ts";
import { matching, oneOf } from "../automata/regex_automaton.ts";
import { choice, type Expression, sequence, text } from "../grammar/grammar.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import type { SchemaCompiler } from "./compile.ts";
import { type Conjunction, namedValues, namesUnder } from "./conjunction.ts";
import { expand } from "./expand.ts";
import { numbersOf, stringRulesTexts } from "./scalars.ts";
import { refused } from "./keywords.ts";
import type { Schema } from "./schema.ts";
import { patternTexts } from "./scalars.ts";

const MOST_KEYS = 2_000, MOST_PATTERNS = 6, MOST_COUNTS = 20_000, MOST_OTHERS = 1_000;

/** A class of undeclared keys, and the schemas of their values. */
interface Others {
  readonly key: string;
  readonly names: Automaton;
  readonly schemas: Conjunction;
}

/**
 * Compiles objects: declared properties in their order, then undeclared ones. Undeclared properties
 * are generated only with `additionalProperties` or `patternProperties`, or if no keyword names
 * keys.
 */
export function compileObject(compiler: SchemaCompiler, base: Conjunction): Expression {
  const shape = new Shape(compiler, base);
  return sequence(text("{"), new Members(compiler, shape).expression());
}

/** A pattern of keys, and the schema of their values. */
interface KeyPattern {
  /** Index of the schema in the conjunction. */
  readonly owner: number;
  readonly source: string;
  readonly value: Schema;
  readonly texts: Automaton;
}

/** Combined constraints of a conjunction on the keys of an object. */
class Shape {
  readonly keys: readonly string[];
  readonly required: ReadonlySet<string>;
  readonly min: number;
  readonly max: number;
  readonly others: readonly Others[];
  readonly #base: Conjunction;
  /** Declared properties of each schema. */
  readonly #properties: readonly ReadonlyMap<string, Schema>[];
  readonly #additional: readonly (Schema | undefined)[];
  /** `additionalProperties` of each schema. */
  readonly #patterns: readonly KeyPattern[];
  /** Keys that `propertyNames` allows. */
  readonly #names: Automaton;

  constructor(compiler: SchemaCompiler, base: Conjunction) {
    const { reader } = compiler;
    this.#base = base;
    this.#properties = base.map((schema) => new Map(reader.named(schema, "properties")));
    this.#additional = base.map((schema) => reader.child(schema, "additionalProperties"));
    this.#patterns = base.flatMap((schema, owner) =>
      reader.named(schema, "patternProperties").map(([source, value]) => ({
        owner,
        source,
        value,
        texts: patternTexts(source, `JSON schema: the pattern ${quote(value.path)}`),
      }))
    );
    checkLimit("the number of patternProperties", this.#patterns.length, MOST_PATTERNS);
    this.required = new Set(namesUnder(reader, base, "required"));
    const declared = this.#properties.flatMap((map) => [...map.keys()]);
    this.keys = [...new Set([...declared, ...this.required])];
    checkLimit("the number of properties", this.keys.length, MOST_KEYS);
    const characters = this.keys.reduce((sum, key) => sum + key.length, 0);
    checkLimit("the length of all names of properties", characters, LIMITS.sourceLength / 8);
    const keywords = base.map((schema) => reader.keywords(schema));
    this.min = Math.max(0, ...numbersOf(keywords, "minProperties"));
    this.max = Math.min(...numbersOf(keywords, "maxProperties"), Infinity);
    this.#names = keyTexts(compiler, base);
    this.others = this.#undeclared(keywords.map(({ propertyNames = true }) => propertyNames));
    this.#checkCounts(base);
  }

  /** Returns the schemas of a declared key's value, or `undefined` if the key is not allowed. */
  schemasOf(key: string): Conjunction | undefined {
    if (!accepts(this.#names, key)) return undefined;
    return this.#schemas(({ texts }) => accepts(texts, key), key);
  }

  /**
   * Returns the schemas of a key that some patterns match, or `undefined` if one allows no value.
   */
  #schemas(isMatched: (pattern: KeyPattern) => boolean, key?: string): Conjunction | undefined {
    const schemas = this.#base.flatMap((_, owner): Schema[] => {
      const own = key === undefined ? undefined : this.#properties[owner]!.get(key);
      const matched = this.#patterns
        .filter((pattern) => pattern.owner === owner && isMatched(pattern))
        .map(({ value }) => value);
      const found = own === undefined ? matched : [own, ...matched];
      if (found.length > 0) return found;
      const additional = this.#additional[owner];
      return additional === undefined ? [] : [additional];
    });
    return schemas.some(({ keywords }) => keywords === false) ? undefined : schemas;
  }

  /** Partitions the undeclared keys by the set of patterns that they match. */
  #undeclared(propertyNames: readonly JsonValue[]): Others[] {
    const patterns = this.#patterns;
    const speaksOfOthers = this.#additional.some((schema) => schema !== undefined);
    const isOpen = this.keys.length === 0 && patterns.length === 0 && !speaksOfOthers;
    const undeclared = this.keys.length === 0
      ? this.#names
      : subtract(this.#names, matching(oneOf(this.keys)));
    const others: Others[] = [];
    for (let chosen = 0; chosen < 1 << patterns.length; chosen++) {
      if (chosen === 0 && !speaksOfOthers && !isOpen) continue;
      const isChosen = patterns.map((_, i) => (chosen >> i & 1) === 1);
      const schemas = this.#schemas((pattern) => isChosen[patterns.indexOf(pattern)] === true);
      if (schemas === undefined) continue;
      const names = patterns.reduce(
        (all, { texts }, i) => isChosen[i] ? intersect(all, texts) : subtract(all, texts),
        undeclared,
      );
      const kinds = patterns.map(({ source }, i) => [source, isChosen[i]]);
      const key = JSON.stringify(["key", propertyNames, kinds, this.keys]);
      if (!isEmpty(names)) others.push({ key, names, schemas });
    }
    return others;
  }

  /**
   * Rejects counts of undeclared keys above 1, because such keys may repeat and then count once.
   */
  #checkCounts(base: Conjunction): void {
    const most = this.keys.length + 1;
    const owner = base[0];
    if (this.min > most && this.others.length > 0 && owner !== undefined) {
      throw refused(
        owner.path,
        "minProperties",
        `is ${this.min}, which can be enforced up to ${most} here: undeclared keys may repeat`,
      );
    }
  }
}

/** Accepts the keys that `propertyNames` allows. */
function keyTexts(compiler: SchemaCompiler, base: Conjunction): Automaton {
  const { reader } = compiler;
  let texts = ANYTHING;
  for (const schema of base) {
    const rule = reader.child(schema, "propertyNames");
    if (rule === undefined) continue;
    const alternatives = expand(reader, [rule]);
    const [only] = alternatives;
    if (alternatives.length > 1) {
      throw refused(rule.path, "anyOf", "cannot be enforced on the names of properties");
    }
    const values = only && namedValues(reader, only);
    texts = intersect(
      texts,
      only === undefined
        ? matching(oneOf([]))
        : values === undefined
        ? stringRulesTexts(reader, only)
        : matching(oneOf(values.filter((value) => typeof value === "string"))),
    );
  }
  return texts;
}

/** Compiles the members of an object and its closing brace. */
class Members {
  readonly #compiler: SchemaCompiler;
  readonly #shape: Shape;
  readonly #rules = new Map<string, Expression>();
  readonly #cap: number;
  readonly #other: Expression | undefined;

  constructor(compiler: SchemaCompiler, shape: Shape) {
    this.#compiler = compiler;
    this.#shape = shape;
    this.#cap = shape.max === Infinity ? Math.max(1, shape.min) : shape.max;
    checkLimit(
      "the number of properties times how many of them are counted",
      (shape.keys.length + 1) * Math.min(this.#cap, shape.keys.length + 1),
      MOST_COUNTS,
    );
    const pairs = shape.others.map(({ key, names, schemas }) =>
      sequence(compiler.string(key, () => names), compiler.colon, compiler.value(schemas))
    );
    const most = shape.max === Infinity ? 0 : shape.max;
    if (pairs.length > 0) checkLimit("maxProperties", most, MOST_OTHERS);
    this.#other = pairs.length === 0 ? undefined : compiler.grammar.rule(choice(...pairs));
  }

  expression(): Expression {
    return this.#from(0, 0);
  }

  /**
   * Matches the rest of an object with `count` members, in which keys from `index` on may follow.
   */
  #from(index: number, count: number): Expression {
    const { keys, required, max } = this.#shape;
    if (index === keys.length) return this.#others(count, 0);
    const name = `${index},${count}`;
    const known = this.#rules.get(name);
    if (known !== undefined) return known;
    const key = keys[index]!;
    const options: Expression[] = [];
    const schemas = this.#shape.schemasOf(key);
    if (schemas !== undefined && count < max) {
      const { comma, colon } = this.#compiler;
      const pair = sequence(text(JSON.stringify(key)), colon, this.#compiler.value(schemas));
      const after = this.#from(index + 1, Math.min(count + 1, this.#cap));
      options.push(count === 0 ? sequence(pair, after) : sequence(comma, pair, after));
    }
    if (!required.has(key)) options.push(this.#from(index + 1, count));
    const rule = this.#compiler.grammar.rule(choice(...options));
    this.#rules.set(name, rule);
    return rule;
  }

  /** Matches the rest of an object with `count` declared and `others` undeclared members. */
  #others(count: number, others: number): Expression {
    const { min, max } = this.#shape;
    const name = `others ${count},${others}`;
    const known = this.#rules.get(name);
    if (known !== undefined) return known;
    const { grammar, comma } = this.#compiler;
    const rule = grammar.declare();
    const self: Expression = { kind: "rule", rule };
    this.#rules.set(name, self);
    const options: Expression[] = [];
    if (count + Math.min(others, 1) >= min) options.push(text("}"));
    if (this.#other !== undefined && count + others < max) {
      const after = this.#others(count, max === Infinity ? 1 : others + 1);
      options.push(
        count + others === 0 ? sequence(this.#other, after) : sequence(comma, this.#other, after),
      );
    }
    grammar.define(rule, choice(...options));
    return self;
  }
}
