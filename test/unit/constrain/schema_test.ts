import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { constraintSpec } from "../../../src/constrain/spec.ts";
import { ForgeError } from "../../../src/errors.ts";
import { FORMATS } from "../../../src/constrain/json_schema/formats.ts";
import { decimalOf } from "../../../src/constrain/json_schema/number.ts";
import { JSON_SCHEMAS } from "../../support/json_schemas.ts";
import { validator } from "../../support/json_schema_validator.ts";
import { Random } from "../../support/random.ts";
import { acceptsText, randomText, spec, withConstraints } from "./support.ts";

const TEXTS_EACH = 12;

Deno.test("schema: random texts of each schema are valid to ajv", async (t) => {
  const names = Object.keys(JSON_SCHEMAS);
  assert(names.length >= 60, `${names.length} schemas`);
  await withConstraints(async (constraints) => {
    for (const [name, schema] of Object.entries(JSON_SCHEMAS)) {
      await t.step(name, async () => {
        const random = new Random(`schema/${name}`);
        const validate = validator(schema);
        const constraint = await constraints.compile(spec.schema(schema), false);
        let ended = 0;
        for (let i = 0; i < TEXTS_EACH; i++) {
          const text = randomText(constraint, random);
          if (text === undefined) continue;
          ended++;
          const wrong = validate(JSON.parse(text));
          assertEquals(wrong, undefined, `${text}: ${wrong}`);
        }
        assert(ended > 0, "no text has ended");
      });
    }
  });
});

Deno.test("schema: every character of a string has the spelling of JSON.stringify", async () => {
  await withConstraints(async (constraints) => {
    const any = await constraints.compile(spec.schema({ type: "string" }), false);
    const one = await constraints.compile(spec.schema({ type: "string", pattern: "^.$" }), false);
    for (let code = 0; code < 256; code++) {
      const character = String.fromCharCode(code);
      const text = JSON.stringify(character);
      assert(acceptsText(any, text), text);
      assertEquals(acceptsText(one, text), /^.$/u.test(character), text);
    }
    for (let code = 0; code < 32; code++) {
      const pattern = `^\\x${code.toString(16).padStart(2, "0")}$`;
      const own = await constraints.compile(spec.schema({ type: "string", pattern }), false);
      const accepted = Array.from({ length: 34 }, (_, other) => other)
        .filter((other) => acceptsText(own, JSON.stringify(String.fromCharCode(other))));
      assertEquals(accepted, [code]);
    }
  });
});

Deno.test("schema: accepts typical texts and rejects invalid ones", async () => {
  const cases: [unknown, string[], string[]][] = [
    [
      JSON_SCHEMAS["person"],
      ['{"name":"Ada","age":36}', '{"name": "Ada", "age": 36}', '{"name":"é日🙂","age":0}'],
      [
        '{"age":36,"name":"Ada"}',
        '{"name":"Ada","age":151}',
        '{"name":"","age":1}',
        '{"name":"Ada"}',
        '{"name":"Ada","age":36,"x":1}',
        '{"name":"Ada",  "age":36}',
        '{"name":"Ada","age":036}',
        ' {"name":"Ada","age":36}',
        '{"name":"Ada","age":36} ',
        '{"name":"Ad\\u0061","age":36}',
      ],
    ],
    [{ type: "number" }, ["0", "-0", "1.5", "-12.25"], ["01", "1.", ".5", "+1", "1e400", "NaN"]],
    [{ type: "string" }, ['""', '"\\n\\t\\"\\\\\\u0001"'], ['"\n"', '"\\x"', '"', "a"]],
    [JSON_SCHEMAS["object"], ["{}", '{"a":{"b":[1,null,"x"]}}'], ["[]", "{a:1}", '{"a":1,}']],
    [JSON_SCHEMAS["declared and others"], ['{"id":1,"x":"y"}'], ['{"id":1,"id":"y"}']],
    [{ type: "integer", enum: [1, 2.5, 3, "4", 1e300] }, ["1", "3"], ["2.5", '"4"', "2"]],
    [{ type: "number", enum: [1, 2.5, "4"] }, ["1", "2.5"], ['"4"']],
    [
      { allOf: [{ enum: [[1, { a: 2, b: [] }], 3] }, { enum: [[1, { b: [], a: 2 }], 4] }] },
      ['[1,{"a":2,"b":[]}]'],
      ["3", "4", "[1]"],
    ],
    [
      { properties: { a: { type: "null" }, ab: {} }, propertyNames: { maxLength: 1 } },
      ["{}", '{"a": null}'],
      ['{"ab": 1}', '{"a": 1}', '{"xy": 1}'],
    ],
    [{ type: "string", nullable: false }, ['"a"'], ["null"]],
    [
      { oneOf: [{ type: "integer", maximum: 2 }, { type: "number", minimum: 3 }] },
      ["2", "3", "3.5", "-7"],
      ["2.5", '"3"'],
    ],
    [
      {
        oneOf: ["a", "b"].map((key) => ({
          type: "object",
          properties: { [key]: { type: "integer" } },
          required: [key],
          additionalProperties: false,
        })),
      },
      ['{"a": 1}', '{"b": 2}'],
      ["{}", '{"a": 1, "b": 2}', '{"c": 1}'],
    ],
    [JSON_SCHEMAS["date"], ['"2024-02-29"'], ['"2023-02-29"', '"2024-13-01"', '"2024-2-9"']],
    // Integers and other numbers with the same rules.
    [
      { properties: { a: { type: "integer" }, b: { type: "number" }, c: { type: "integer" } } },
      ['{"a":1,"b":1.5,"c":2}'],
      ['{"a":1.5}', '{"c":1.5}'],
    ],
    [
      { type: "number" },
      [`-${"9".repeat(15)}.${"9".repeat(15)}`],
      ["9".repeat(16), `1.${"0".repeat(16)}`],
    ],
    [{ type: "number", multipleOf: 0.05 }, ["0.05", "0.1", "1", "0"], ["0.051", "0.01"]],
    [{ type: "number", maximum: 1.5e-7 }, ["0.00000015", "0"], ["0.0000002", "0.000000151", "1"]],
    [{ type: "integer", minimum: 12e13 }, ["120000000000000"], ["119999999999999", "12"]],
    [{ type: "array", uniqueItems: true, maxItems: 1 }, ["[]", "[1]"], ["[1,1]"]],
    [{ type: "array", uniqueItems: false, maxItems: 2 }, ["[1,1]"], ["[1,1,1]"]],
    // Objects whose undeclared names follow different rules.
    [
      {
        properties: {
          a: { propertyNames: { maxLength: 1 }, additionalProperties: { type: "integer" } },
          b: { propertyNames: { minLength: 2 }, additionalProperties: { type: "integer" } },
          c: { properties: { x: true }, additionalProperties: { type: "integer" } },
          d: { properties: { y: true }, additionalProperties: { type: "integer" } },
          e: { patternProperties: { "^x": { type: "integer" } } },
          f: { patternProperties: { "^x": { type: "null" } }, additionalProperties: true },
          g: { properties: { z: { type: "null" } }, patternProperties: { "^x": true } },
        },
      },
      [
        '{"a":{"x":1},"b":{"xy":1}}',
        '{"c":{"y":1},"d":{"x":1}}',
        '{"c":{"x":null},"d":{"y":null}}',
        '{"e":{"x":1},"f":{"y":1,"x":null},"g":{"z":null,"x":1}}',
      ],
      ['{"a":{"xy":1}}', '{"b":{"x":1}}', '{"c":{"y":null}}', '{"d":{"x":null}}'],
    ],
    // References, with escapes in their pointers.
    ...[
      ["a/b~c d", "#/$defs/a~1b~0c%20d"],
      ["~1", "#/$defs/~01"],
      ["é", "#/$defs/%C3%A9"],
      ["50%", "#/$defs/50%25"],
    ].map(([name, $ref]): [unknown, string[], string[]] => [
      { $defs: { [name!]: { const: 1 } }, $ref },
      ["1"],
      ["2"],
    ]),
    [{ definitions: { a: { const: 1 } }, allOf: [{ $ref: "#/definitions/a" }] }, ["1"], ["2"]],
    [{ allOf: [{ maximum: 1 }, { minimum: 1 }], $ref: "#/allOf/0" }, ["1"], ["2", "0"]],
    // Names that look like the place of another schema.
    [
      {
        properties: {
          "a/properties/b": { const: 1 },
          a: { properties: { b: { const: 2 } } },
        },
      },
      ['{"a/properties/b":1,"a":{"b":2}}'],
      ['{"a/properties/b":2}', '{"a":{"b":1}}'],
    ],
    [
      { oneOf: [{ type: "number", minimum: 3 }, { type: "integer", maximum: 2 }] },
      ["2", "3.5"],
      ["2.5"],
    ],
    [{ oneOf: [{ enum: [1, null] }, { type: "string" }] }, ["1", "null", '"a"'], ["2"]],
    [
      {
        oneOf: [
          { type: "object", properties: { a: true }, additionalProperties: false },
          { type: "object", properties: { b: true }, required: ["b"] },
        ],
      },
      ["{}", '{"a":1}', '{"b":1}'],
      ['{"a":1,"b":1}'],
    ],
    [
      {
        oneOf: [[1, 2], [3]].map((values) => ({
          type: "object",
          properties: { kind: { enum: values } },
          required: ["kind"],
        })),
      },
      ['{"kind":1}', '{"kind":3}'],
      ["{}", '{"kind":4}'],
    ],
    [{ minLength: 0, maxLength: 0 }, ['""'], ['"a"']],
    [{ properties: { a: {}, b: {}, c: {} }, maxProperties: 2 }, ['{"a":1,"c":1}', '{"b":1}'], [
      '{"a":1,"b":1,"c":1}',
    ]],
    [{ allOf: [{ enum: [{ a: [1], b: 2 }, 3] }, { enum: [3, { b: 2, a: [1] }] }] }, [
      '{"a":[1],"b":2}',
      "3",
    ], ['{"a":[2],"b":2}']],
    [
      { type: "number" },
      ["1".repeat(15), `-0.${"1".repeat(15)}`],
      ["1".repeat(16), `0.${"1".repeat(16)}`],
    ],
    // More parts than may be nested in each other.
    [
      {
        properties: Object.fromEntries(
          Array.from({ length: 70 }, (_, i) => [`k${i}`, { properties: { a: { const: i } } }]),
        ),
      },
      ['{"k69":{"a":69}}'],
      ['{"k69":{"a":68}}'],
    ],
  ];
  await withConstraints(async (constraints) => {
    for (const [schema, good, bad] of cases) {
      const constraint = await constraints.compile(spec.schema(schema), false);
      for (const text of good) assert(acceptsText(constraint, text), `${text} is refused`);
      for (const text of bad) assert(!acceptsText(constraint, text), `${text} is accepted`);
    }
  });
});

Deno.test("schema: bounds allow exactly the numbers that meet them, zeros of both signs too", async () => {
  const wholes = ["0", "1", "5", "10"], fractions = ["", ".0", ".5", ".50", ".05"];
  const numbers = ["", "-"].flatMap((sign) =>
    wholes.flatMap((whole) => fractions.map((fraction) => sign + whole + fraction))
  );
  const rules: Record<string, (value: number, bound: number) => boolean> = {
    minimum: (value, bound) => value >= bound,
    maximum: (value, bound) => value <= bound,
    exclusiveMinimum: (value, bound) => value > bound,
    exclusiveMaximum: (value, bound) => value < bound,
  };
  await withConstraints(async (constraints) => {
    for (const [keyword, allows] of Object.entries(rules)) {
      for (const bound of [-5, -0.5, 0, 0.05, 1]) {
        const schema = { type: "number", [keyword]: bound };
        const constraint = await constraints.compile(spec.schema(schema), false);
        for (const text of numbers) {
          const isAccepted = acceptsText(constraint, text);
          assertEquals(isAccepted, allows(Number(text), bound), `${keyword} ${bound}: ${text}`);
        }
      }
    }
  });
});

Deno.test("schema: bounds are compared by all digits of their doubles", () => {
  const random = new Random("decimals");
  const values = [0, -0, 1, -1, 10, 0.1, 1e21, 1.5e300, -2.5e-7, 5e-324, 2 ** 53, 100.25];
  for (let i = 0; i < 500; i++) {
    values.push((random.uniform() - 0.5) * 10 ** random.int(-30, 30));
  }
  for (const value of values) {
    const { negative, whole, fraction } = decimalOf(value);
    assert(/^(?:|[1-9]\d*)$/.test(whole) && /^(?:|\d*[1-9])$/.test(fraction), `${value}`);
    assertEquals(
      Number(`${negative ? "-" : ""}${whole}.${fraction}e0`.replace(/^(-?)\./, "$10.")),
      value || 0,
    );
  }
});

/** Valid texts of each format, and invalid ones. */
const FORMAT_TEXTS: Readonly<Record<string, readonly [good: string[], bad: string[]]>> = {
  date: [
    ["2024-02-29", "2000-02-29", "2400-02-29", "2023-02-28", "1999-12-31", "2023-04-30"],
    [
      ...["2023-02-29", "1900-02-29", "2100-02-29", "2024-02-30", "2023-04-31", "2023-11-31"],
      ...["2023-01-32", "2023-00-10", "2023-13-01", "2023-01-00", "23-01-01", "2023-1-01"],
    ],
  ],
  time: [
    ["00:00:00Z", "23:59:59.123456789+23:59", "12:30:45-00:00"],
    ["24:00:00Z", "12:60:00Z", "12:00:60Z", "12:00:00", "12:00:00+24:00", "12:00:00.Z", "12:00Z"],
  ],
  "date-time": [
    ["2024-02-29T12:30:00Z", "2023-12-31T23:59:59.5+01:00"],
    ["2024-02-29 12:30:00Z", "2023-02-29T12:30:00Z", "2024-02-29", "2024-02-29T12:30:00"],
  ],
  duration: [
    ["P1Y", "P1Y2M3DT4H5M6S", "PT5S", "P2W", "P3M", "P1DT12H", "PT1H5M"],
    ["P", "PT", "P1", "1Y", "P1S", "P1YT", "PT5H6", "P1D2M", "P1W2D", "PT1H5S"],
  ],
  email: [
    ["a@b.co", "a.b@c.d", "a+b@host.example.org"],
    ["a@b", "@b.co", "a@", "a b@c.co", "a..b@c.co", "a@-b.co"],
  ],
  hostname: [["a", "a.b", "a-1.example.org", "1.2"], ["", "-a", "a-", "a..b", ".a", "a_b"]],
  ipv4: [
    ["0.0.0.0", "255.255.255.255", "249.199.99.9"],
    ["256.0.0.0", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.260", "300.1.1.1"],
  ],
  ipv6: [
    [
      ...["::", "::1", "1::", "1:2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"],
      ...["ABCD:ef01::1", "1:2:3::5:6:7:8", "1:2:3:4:5:6::8"],
    ],
    [
      ...["", ":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "g::"],
      ...["::1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::8", "1:2:3:4::5:6:7:8", "1:"],
    ],
  ],
  uri: [
    ["http://a", "https://a.b:8080/c/d?e=f#g", "a+b-c.d://e/%41", "x://a/?q#"],
    ["a", "://a", "http:a", "1a://b", "http://a:0", "http://a:123456", "http://a/%4", "http://a b"],
  ],
  uuid: [
    ["01234567-89ab-cdef-ABCD-EF0123456789"],
    ["0123456789abcdefABCDEF0123456789", "g1234567-89ab-cdef-ABCD-EF0123456789"],
  ],
  "json-pointer": [["", "/", "/a/b", "/~0~1", "/a b", "//"], ["a", "/~", "/~2", "/a~", "#/a"]],
};

Deno.test("schema: each format has the texts of its standard", () => {
  assertEquals(Object.keys(FORMAT_TEXTS).toSorted(), Object.keys(FORMATS).toSorted());
  for (const [format, [good, bad]] of Object.entries(FORMAT_TEXTS)) {
    // The parser of expressions is compared with JavaScript's elsewhere.
    const pattern = new RegExp(`^(?:${FORMATS[format]})$`, "u");
    for (const text of good) assert(pattern.test(text), `${format}: ${text} is refused`);
    for (const text of bad) assert(!pattern.test(text), `${format}: ${text} is accepted`);
  }
});

type Rule = Readonly<Record<string, unknown>>;

/** Returns all lists of so many of the values. */
function lists(values: readonly unknown[], length: number): unknown[][] {
  if (length === 0) return [[]];
  return lists(values, length - 1).flatMap((list) => values.map((value) => [...list, value]));
}

const upTo = (values: readonly unknown[], most: number) =>
  Array.from({ length: most + 1 }, (_, length) => lists(values, length)).flat();

/** Rules for values of one type, and values with which each pair of them is tried. */
const RULES: Readonly<Record<string, readonly [rules: readonly Rule[], values: unknown[]]>> = {
  array: [
    [
      ...[1, 2].flatMap((count) => [{ minItems: count }, { maxItems: count }]),
      ...[{ items: false }, { items: { type: "integer" } }, { items: { enum: ["a", 2] } }],
      { prefixItems: [{ type: "integer" }] },
      { prefixItems: [{ type: "integer" }], items: { type: "string" } },
      { prefixItems: [true, { const: 2 }], items: true },
    ],
    upTo([1, 2, "a"], 3),
  ],
  object: [
    [
      ...[{ minProperties: 1 }, { maxProperties: 0 }, { maxProperties: 1 }, { maxProperties: 2 }],
      { properties: { a: { type: "integer" }, b: { type: "string" } }, required: ["b"] },
      { properties: { a: { enum: [1, 2] }, c: true }, minProperties: 2 },
      ...[{ properties: { b: false } }, { required: ["a"] }, { required: ["a", "b"] }],
      ...[false, { type: "integer" }].map((additionalProperties) => ({ additionalProperties })),
      { properties: { a: true }, additionalProperties: { type: "string" } },
      { propertyNames: { enum: ["a", "c"] } },
      { patternProperties: { "^[ab]$": { type: "integer" } } },
      { patternProperties: { "^[bc]$": { type: "string" } }, additionalProperties: false },
    ],
    lists([undefined, 1, "x"], 3).map(([a, b, c]) => JSON.parse(JSON.stringify({ a, b, c }))),
  ],
  string: [
    [
      ...[1, 2].flatMap((count) => [{ minLength: count }, { maxLength: count }]),
      ...["^a", "b$", "^[ab]+$", "🙂"].map((pattern) => ({ pattern })),
      ...[{ enum: ["a", "ab", 1] }, { const: "ab" }, { format: "date" }],
    ],
    [
      ...upTo(["a", "b"], 3).map((letters) => letters.join("")),
      ...["é", "🙂", "🙂b", "2024-02-29", "2023-02-29"],
    ],
  ],
  "": [
    [
      ...["null", "boolean", "integer", "number", "string"].map((type) => ({ type })),
      ...[{ type: ["null", "integer"] }, { type: ["boolean", "string"] }],
      ...[{ enum: [null, 1, "a"] }, { enum: [true, 1.5, "b"] }, { const: 1 }, { const: null }],
      ...[{ minimum: 1 }, { exclusiveMaximum: 1.5 }, { multipleOf: 0.5 }, { multipleOf: 2 }]
        .map((rule) => ({ type: ["number", "null"], ...rule })),
      { anyOf: [{ type: "string" }, { type: "integer", minimum: 2 }] },
      { oneOf: [{ type: "null" }, { type: "number", maximum: 1 }] },
    ],
    [null, true, false, -2, 0, 1, 1.5, 2, 3, "", "a", "b"],
  ],
};

/** True if forge does not generate a value since rules name other items or keys, and no others. */
function isBeyond(rules: readonly Rule[], value: unknown): boolean {
  const named = (keyword: string) => rules.flatMap((rule) => rule[keyword] ?? []);
  if (Array.isArray(value)) {
    const prefixes = rules.map(({ prefixItems }) => (prefixItems as unknown[] ?? []).length);
    const most = Math.max(...prefixes);
    return most > 0 && named("items").length === 0 && value.length > most;
  }
  if (typeof value !== "object" || value === null) return false;
  if (rules.some(({ additionalProperties }) => additionalProperties !== undefined)) return false;
  const patterns = named("patternProperties").flatMap((rule) => Object.keys(rule as Rule));
  const keys = [
    ...named("properties").flatMap((rule) => Object.keys(rule as Rule)),
    ...named("required"),
  ];
  const isNamed = (key: string) =>
    keys.includes(key) || patterns.some((pattern) => new RegExp(pattern).test(key));
  return keys.length + patterns.length > 0 && !Object.keys(value).every(isNamed);
}

/** Returns the spellings of a value: properties may come in any order. */
function spellings(value: unknown): string[] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return [JSON.stringify(value)];
  }
  const orders = (entries: [string, unknown][]): [string, unknown][][] =>
    entries.length === 0
      ? [[]]
      : entries.flatMap((entry) =>
        orders(entries.filter((other) => other !== entry)).map((rest) => [entry, ...rest])
      );
  return orders(Object.entries(value)).map((order) => JSON.stringify(Object.fromEntries(order)));
}

Deno.test("schema: of each pair of rules, exactly the values pass that ajv accepts", async () => {
  let nPairs = 0, nRefused = 0;
  await withConstraints(async (constraints) => {
    for (const [type, [rules, values]] of Object.entries(RULES)) {
      const outer = type === "" ? {} : { type };
      const judges = [outer, ...rules].map(validator);
      const isValid = (rule: number, value: unknown) => judges[rule]!(value) === undefined;
      for (let i = 0; i < rules.length; i++) {
        for (let j = i; j < rules.length; j++) {
          nPairs++;
          const pair = [rules[i]!, rules[j]!];
          const schema = { ...outer, allOf: pair };
          const valid = values.filter((value) =>
            [0, i + 1, j + 1].every((rule) => isValid(rule, value)) && !isBeyond(pair, value)
          );
          try {
            const constraint = await constraints.compile(spec.schema(schema), false);
            const found = values.filter((value) =>
              spellings(value).some((text) => acceptsText(constraint, text))
            );
            assertEquals(found, valid, JSON.stringify(schema));
          } catch (error) {
            if (!(error instanceof ForgeError)) throw error;
            nRefused++;
            // Contradictions are errors, and so is what cannot be enforced.
            const isContradiction = error.message.includes("contradict");
            assert(!isContradiction || valid.length === 0, `${JSON.stringify(schema)}: ${error}`);
          }
        }
      }
    }
  });
  assert(nRefused < nPairs / 2, `${nRefused} of ${nPairs} pairs are refused`);
});

Deno.test("schema: annotations have no effect", async () => {
  await withConstraints(async (constraints) => {
    const notes = { $schema: "x", $comment: "x", title: "x", description: "x", default: 1 };
    const flags = { examples: [1], deprecated: true, readOnly: true, writeOnly: true };
    const schema = { type: "boolean", ...notes, ...flags };
    const constraint = await constraints.compile(spec.schema(schema), false);
    const accepted = ["true", "1"].map((text) => acceptsText(constraint, text));
    assertEquals(accepted, [true, false]);
  });
});

Deno.test("schema: names that may repeat count once", async () => {
  await withConstraints(async (constraints) => {
    const schema = {
      properties: { a: true, b: true },
      additionalProperties: true,
      minProperties: 2,
      maxProperties: 4,
    };
    const constraint = await constraints.compile(spec.schema(schema), false);
    for (
      const [text, isValid] of [
        ['{"x":1,"x":2}', false],
        ['{"x":1,"x":2,"x":3}', false],
        ['{"a":1,"x":2}', true],
        ['{"a":1,"b":2}', true],
      ] as const
    ) {
      assertEquals(acceptsText(constraint, text), isValid, text);
    }
  });
});

Deno.test("schema: unsupported keywords are rejected by name and place", async () => {
  const refusals: [unknown, string[]][] = [
    [{ not: { type: "string" } }, ['"not"', '"#"']],
    [{ if: {}, then: {} }, ['"if"']],
    [{ type: "array", contains: {} }, ['"contains"']],
    [{ type: "array", items: { type: "integer" }, uniqueItems: true }, ['"uniqueItems"']],
    [{ properties: { a: { dependentRequired: {} } } }, ['"dependentRequired"', '"#/properties/a"']],
    [{ properties: { a: { items: { unevaluatedItems: false } } } }, ["#/properties/a/items"]],
    [{ unevaluatedProperties: false }, ["additionalProperties can"]],
    [{ type: "string", contentEncoding: "base64" }, ['"contentEncoding"']],
    [{ type: "string", format: "regex" }, ["format", "regex", "date-time"]],
    [{ type: "string", nullable: true }, ['"nullable"', '"null"']],
    [{ $anchor: "x" }, ['"$anchor"']],
    [{ $dynamicRef: "#x" }, ['"$dynamicRef"']],
    [{ dependencies: {} }, ['"dependencies"']],
    [{ typo: 1 }, ['"typo"', "is not known"]],
    [{ xtypo: 1 }, ['"xtypo"', "is not known"]],
    [{ properties: { a: { $id: "b" } } }, [
      '"$id"',
      "#/properties/a",
      "only supported at the root",
    ]],
    [{ type: "string", minLength: 1.5 }, ["minLength", "1.5"]],
    [{ required: ["a", 1] }, ["required", "an array of strings"]],
    [{ type: [] }, ["type", "[]"]],
    [{ multipleOf: -1 }, ["multipleOf", "-1"]],
    [{ uniqueItems: 1 }, ["uniqueItems", "true or false"]],
    [{ type: "array", uniqueItems: true, maxItems: 2 }, ['"uniqueItems"']],
    [{ toString: 1 }, ['"toString"', "is not known"]],
    [{ oneOf: [{ type: ["string", "null"] }, { type: ["integer", "null"] }] }, ['"oneOf"']],
    [
      {
        oneOf: ["string", "integer"].map((type) => ({ anyOf: [{ type }, { type: "null" }] })),
      },
      ['"oneOf"', "alternatives 0 and 1"],
    ],
    [{ oneOf: [{ type: "integer" }, { const: 1 }] }, ['"oneOf"', "alternatives 0 and 1"]],
    [{ oneOf: [{ const: 1 }, { type: "integer" }] }, ['"oneOf"', "alternatives 0 and 1"]],
    [{ type: ["string", "text"] }, ["type", "valid is"]],
    [{ type: "strin" }, ["type", "strin", "valid is"]],
    [{ type: "string", minLength: -1 }, ["minLength", "-1"]],
    [{ type: "integer", minimum: "3" }, ["minimum"]],
    [{ exclusiveMinimum: true }, ["exclusiveMinimum", "true"]],
    [{ items: [{}] }, ["items", "prefixItems"]],
    [{ multipleOf: 0 }, ["multipleOf"]],
    [{ enum: [] }, ["enum"]],
    [{ properties: { a: 3 } }, ["#/properties/a", "a number"]],
    [{ $ref: "other.json" }, ["$ref", "other.json"]],
    [{ properties: { a: { $ref: "other.json" } } }, ["$ref", "other.json"]],
    [{ allOf: [{ enum: [{ a: 1 }] }, { enum: [{ a: 2 }] }] }, ["no text at all"]],
    [{ type: "array", minItems: 2, maxItems: 1 }, ["no text at all"]],
    [{ type: "array", prefixItems: [{}], minItems: 2 }, ["no text at all"]],
    [{ $ref: "#/$defs/none" }, ["$ref", "#/$defs/none"]],
    [{ $ref: "#/constructor" }, ["$ref"]],
    [{ $ref: "#" }, ["$ref", "does not refer to itself"]],
    [{ $defs: { a: { allOf: [{ $ref: "#/$defs/a" }] } }, $ref: "#/$defs/a" }, ["refer to itself"]],
    [{ enum: ["a"], pattern: "a" }, ['"pattern"', "together with enum"]],
    [{ oneOf: [{ type: "string" }, { maxLength: 3, type: "string" }] }, ['"oneOf"', "0 and 1"]],
    [{ oneOf: [{ const: 1 }, { enum: [2, 1] }] }, ['"oneOf"']],
    [{ oneOf: [{ type: "integer" }, { type: "number" }] }, ['"oneOf"']],
    [{ oneOf: [{ type: "number" }, { type: "integer" }] }, ['"oneOf"']],
    [
      {
        oneOf: [
          { type: "object", required: ["a"] },
          { type: "object", additionalProperties: false, patternProperties: { "^a$": true } },
        ],
      },
      ['"oneOf"'],
    ],
    [
      {
        oneOf: [
          { type: "object", required: ["a"] },
          { type: "object", additionalProperties: false, properties: { a: true } },
        ],
      },
      ['"oneOf"'],
    ],
    [
      {
        oneOf: [{ const: 1 }, { anyOf: [{ const: 2 }, { const: 1 }] }].map((a) => ({
          type: "object",
          properties: { a },
          required: ["a"],
        })),
      },
      ['"oneOf"'],
    ],
    // Alternatives that are not proved disjoint: a value and a range, arrays, objects.
    [{ oneOf: [{ const: 1 }, { type: "integer", minimum: 5 }] }, ['"oneOf"', "0 and 1"]],
    [{ oneOf: [{ type: "array", maxItems: 1 }, { type: "array", minItems: 2 }] }, ['"oneOf"']],
    [{ oneOf: [{ type: "object", required: ["a"] }, { required: ["b"] }] }, ['"oneOf"']],
    [{ anyOf: {} }, ["anyOf", "{}", "an array of schemas"]],
    [{ properties: [] }, ["properties", "[]", "an object of schemas"]],
    [{ $ref: "#/%zz" }, ["$ref", "%zz"]],
    [{ type: "object", minProperties: 2 }, ['"minProperties"', "repeat"]],
    [
      { type: "object", propertyNames: { anyOf: [{ maxLength: 1 }, { minLength: 3 }] } },
      ["#/propertyNames", '"anyOf"', "names of properties"],
    ],
    [{ type: "string", pattern: "(?=a)" }, ["lookahead", "#"]],
    [{ type: "integer", minimum: 3, maximum: 2 }, ["no text at all"]],
    [{ type: "string", minLength: 3, maxLength: 2 }, ["no text at all"]],
    [{ type: "array", minItems: 3, maxItems: 2 }, ["no text at all"]],
    [{ properties: { a: {}, b: {} }, minProperties: 2, maxProperties: 1 }, ["no text at all"]],
    [{ type: "string", allOf: [{ type: "integer" }] }, ["no text at all"]],
    [{ properties: { a: { $ref: "#" } }, required: ["a"] }, ["no text at all"]],
    [false, ["no text at all"]],
  ];
  await withConstraints(async (constraints) => {
    for (const [schema, words] of refusals) {
      const message = await refusal(() => constraints.compile(spec.schema(schema), false));
      for (const word of words) assertStringIncludes(message, word);
      assert(!message.includes("\n"), message);
    }
  });
});

Deno.test("schema: hostile schemas are rejected early, by size", async () => {
  const deep = (n: number): unknown => n === 0 ? {} : { type: "array", items: deep(n - 1) };
  const doubling: Record<string, unknown> = { last: { type: "integer" } };
  for (let i = 0; i < 40; i++) {
    const $ref = i === 39 ? "#/$defs/last" : `#/$defs/d${i + 1}`;
    doubling[`d${i}`] = { anyOf: [{ $ref }, { $ref, minimum: i }] };
  }
  const hostile: unknown[] = [
    deep(3000),
    { $defs: doubling, $ref: "#/$defs/d0" },
    { type: "string", maxLength: 1e9 },
    { type: "string", pattern: "(a|b)*a(a|b){30}" },
    { type: "string", pattern: "((a{1000}){1000}){1000}" },
    { type: "array", minItems: 1e9 },
    { type: "object", additionalProperties: true, maxProperties: 1e9 },
    { type: "number", multipleOf: 123457 },
    { enum: Array.from({ length: 200_000 }, (_, i) => `value ${i}`) },
    { allOf: Array.from({ length: 20 }, () => ({ anyOf: [{ minimum: 1 }, { minimum: 2 }] })) },
    { patternProperties: Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`${i}`, {}])) },
    // The keys are below the limit, and so is their count.
    {
      properties: Object.fromEntries(Array.from({ length: 338 }, (_, i) => [i, true])),
      maxProperties: 59,
    },
    // Rejected for their number, before the first two are found to overlap.
    { oneOf: Array.from({ length: 300 }, () => ({ type: "integer" })) },
    { properties: Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`p${i}`, {}])) },
  ];
  await withConstraints(async (constraints) => {
    for (const schema of hostile) {
      const message = await refusal(() => constraints.compile(spec.schema(schema), false));
      assertStringIncludes(message, "too large");
    }
  });
});

Deno.test("schema: each limit allows its number and rejects the next", async () => {
  const named = (count: number, value: unknown) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, value]));
  const either = (count: number) => ({
    anyOf: Array.from({ length: count }, (_, i) => ({ const: i })),
  });
  const cases: readonly (readonly [string, number, (count: number) => unknown])[] = [
    ["minLength", 65_536, (count) => ({ type: "string", minLength: count, maxLength: count })],
    ["maxLength", 65_536, (maxLength) => ({ type: "string", maxLength })],
    ["of values of an enum", 10_000, (count) => ({
      enum: Array.from({ length: count }, (_, i) => i),
    })],
    ["of patternProperties", 6, (count) => ({ patternProperties: named(count, {}) })],
    ["of properties", 2000, (count) => ({ properties: named(count, {}) })],
    ["of all names of properties", 131_072, (count) => ({
      properties: { ["a".repeat(count)]: {} },
    })],
    ["maxProperties", 1000, (maxProperties) => ({ type: "object", maxProperties })],
    ["of items that an array counts", 5000, (maxItems) => ({ type: "array", maxItems })],
    ["multipleOf without its decimal point", 1000, (multipleOf) => ({
      type: "integer",
      multipleOf,
    })],
    ["decimals of multipleOf", 15, (count) => ({
      type: "number",
      multipleOf: Number(`1e-${count}`),
    })],
    ["combinations of allOf, anyOf and oneOf", 256, (count) => ({
      allOf: [either(count / 2 | 0), {
        anyOf: [{ minimum: 0 }, { maximum: 9 }, ...count % 2 === 0 ? [] : [{}]],
      }],
    })],
    ["unicode properties", 32, (count) => ({ type: "string", pattern: "\\p{L}".repeat(count) })],
    ["the nesting of", 64, (count) => ({
      type: "string",
      pattern: "(".repeat(count - 1) + ")".repeat(count - 1),
    })],
    ["length of", 20_000, (count) => ({ type: "string", pattern: "a".repeat(count) })],
    ["a repeat count", 20_000, (count) => ({ type: "string", pattern: `^(?:a){${count}}$` })],
  ];
  await withConstraints(async (constraints) => {
    const said = (schema: unknown) =>
      constraints.compile(spec.schema(schema), false).then(() => "", ({ message }) => message);
    for (const [what, most, schema] of cases) {
      const message = await said(schema(most + 1));
      assertStringIncludes(message, what);
      assertStringIncludes(message, `; at most ${most} is allowed`);
      // The number itself is allowed, though another limit may be exceeded.
      assert(!(await said(schema(most))).includes(what), `${what}: ${most}`);
    }
  });
});

Deno.test("schema: alternatives of oneOf are compared within a budget", async () => {
  const rows = (make: (i: number) => unknown) => Array.from({ length: 250 }, (_, i) => make(i));
  // All exclude each other by name, which takes 31,125 comparisons of sets.
  const named = { oneOf: rows((i) => ({ enum: [`a${i}`, `b${i}`] })) };
  // Each comparison of these intersects two automata.
  const ranges = { oneOf: rows((i) => ({ type: "number", minimum: i, exclusiveMaximum: i + 1 })) };
  await withConstraints(async (constraints) => {
    const constraint = await constraints.compile(spec.schema(named), false);
    assert(acceptsText(constraint, '"b249"') && !acceptsText(constraint, '"c1"'));
    const message = await refusal(() => constraints.compile(spec.schema(ranges), false));
    assertStringIncludes(message, "too large");
  });
});

Deno.test("schema: deeply nested or cyclic values are rejected as options", () => {
  const deep = (levels: number) => JSON.parse("[".repeat(levels) + "]".repeat(levels));
  const circular: Record<string, unknown> = {};
  circular["default"] = circular;
  for (const jsonSchema of [{ const: deep(5_000) }, { enum: [deep(100_000)] }, circular]) {
    const error = assertThrows(() => constraintSpec({ jsonSchema }), ForgeError);
    assertStringIncludes(error.message, "nests deeper than 256 levels");
  }
  assertEquals(constraintSpec({ jsonSchema: { const: deep(200) } })?.kind, "json_schema");
});

async function refusal(work: () => Promise<unknown>): Promise<string> {
  try {
    await work();
  } catch (error) {
    if (error instanceof ForgeError) return error.message;
    throw error;
  }
  throw new Error("nothing was refused");
}
