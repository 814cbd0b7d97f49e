import type { JsonValue } from "../../formats/json.ts";
import { checkLimit, LIMITS } from "../limits.ts";
import type { Automaton } from "../automata/automaton.ts";
import {
  automaton,
  choice,
  type Expression,
  type Grammar,
  sequence,
  text,
} from "../grammar/grammar.ts";
import { compileArray } from "./array.ts";
import { type Conjunction, generatedTypes, namedValues } from "./conjunction.ts";
import { expand } from "./expand.ts";
import { TYPE_OF_KEYWORD, type TypeName } from "./keywords.ts";
import { numberTexts, stringRulesTexts } from "./scalars.ts";
import { compileObject } from "./object.ts";
import { refused } from "./keywords.ts";
import { SchemaReader } from "./schema.ts";

/** Compiles a JSON schema to the JSON texts of its valid values. */
export function compileSchema(grammar: Grammar, document: JsonValue): Expression {
  const reader = new SchemaReader(document);
  return new SchemaCompiler(grammar, reader).value([reader.root]);
}

/** Compiles schemas to rules, one for each set of schemas that apply together. */
export class SchemaCompiler {
  readonly grammar: Grammar;
  readonly reader: SchemaReader;
  /** "," and ":", each followed by at most one space. */
  readonly comma: Expression;
  readonly colon: Expression;
  readonly #values = new Map<string, Expression>();
  readonly #scalars = new Map<string, Expression>();
  #depth = 0;

  constructor(grammar: Grammar, reader: SchemaReader) {
    this.grammar = grammar;
    this.reader = reader;
    this.comma = grammar.rule(choice(text(","), text(", ")));
    this.colon = grammar.rule(choice(text(":"), text(": ")));
  }

  /** Matches the JSON texts of the values that all of `schemas` allow. */
  value(schemas: Conjunction): Expression {
    const key = schemas.map(({ path }) => path).toSorted().join("\n");
    const known = this.#values.get(key);
    if (known !== undefined) return known;
    const rule = this.grammar.declare(schemas.map(({ path }) => path).join(" and ") || "any value");
    const self: Expression = { kind: "rule", rule };
    this.#values.set(key, self);
    checkLimit("the nesting of the schema", ++this.#depth, LIMITS.depth);
    const options = expand(this.reader, schemas).flatMap((base) => this.#alternative(base));
    this.#depth--;
    this.grammar.define(rule, choice(...options));
    return self;
  }

  /** Matches JSON strings whose content an automaton accepts; `key` identifies the automaton. */
  string(key: string, texts: () => Automaton): Expression {
    return this.#scalar(
      key,
      () => this.grammar.rule(sequence(text('"'), automaton(texts(), "json"))),
    );
  }

  #alternative(base: Conjunction): Expression[] {
    const values = namedValues(this.reader, base);
    if (values !== undefined) {
      checkLimit("the number of values of an enum", values.length, LIMITS.values);
      this.#rejectNextToValues(base);
      return values.map(literal);
    }
    return generatedTypes(this.reader, base).map((type) => this.#typed(type, base));
  }

  #typed(type: TypeName, base: Conjunction): Expression {
    switch (type) {
      case "null":
        return text("null");
      case "boolean":
        return choice(text("true"), text("false"));
      case "integer":
      case "number": {
        const key = this.#keyOf(base, "number", type);
        return this.#scalar(
          key,
          () => automaton(numberTexts(this.reader, base, type === "integer")),
        );
      }
      case "string": {
        const key = this.#keyOf(base, "string", type);
        return this.string(key, () => stringRulesTexts(this.reader, base));
      }
      case "array":
        return compileArray(this, base);
      case "object":
        return compileObject(this, base);
    }
  }

  #scalar(key: string, make: () => Expression): Expression {
    const known = this.#scalars.get(key);
    if (known !== undefined) return known;
    const made = make();
    this.#scalars.set(key, made);
    return made;
  }

  /** Returns a key of the keywords that apply to a scalar type. */
  #keyOf(base: Conjunction, type: TypeName, name: string): string {
    const rules = base.map((schema) =>
      Object.entries(this.reader.keywords(schema))
        .filter(([keyword]) => TYPE_OF_KEYWORD[keyword] === type)
    ).filter((entries) => entries.length > 0);
    return `${name} ${JSON.stringify(rules)}`;
  }

  #rejectNextToValues(base: Conjunction): void {
    for (const schema of base) {
      for (const keyword of Object.keys(this.reader.keywords(schema))) {
        if (TYPE_OF_KEYWORD[keyword] === undefined) continue;
        throw refused(schema.path, keyword, "is not supported together with enum or const");
      }
    }
  }
}

/** Matches the JSON text of one value. */
function literal(value: JsonValue): Expression {
  return sequence(text(JSON.stringify(value)));
}
