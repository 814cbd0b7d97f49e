/** Templates are not trusted, since anyone can publish a model: none may hang or exhaust memory. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { ChatTemplate } from "../../../src/tokenizer/chat_template.ts";
import { TemplateBudget } from "../../../src/tokenizer/template/budget.ts";
import { FILTERS } from "../../../src/tokenizer/template/filters.ts";
import { Interpreter } from "../../../src/tokenizer/template/interpreter.ts";
import { TEXT_METHODS } from "../../../src/tokenizer/template/methods.ts";
import { TemplateProgram } from "../../../src/tokenizer/template/program.ts";
import { TESTS } from "../../../src/tokenizer/template/tests.ts";
import { TemplateError } from "../../../src/tokenizer/template/values.ts";

const OPTIONS = { addGenerationPrompt: true, bosToken: "<s>", eosToken: "</s>" };

/** Returns a template that doubles `ns.x` the given number of times and then runs `then`. */
function doubled(start: string, times: number, then: string): string {
  const loop = `{% for i in range(${times}) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}`;
  return `{% set ns = namespace(x='${start}') %}${loop}${then}`;
}

/** Returns a template with a list nested twice at each of 60 levels: 2^60 values when printed. */
function billionLaughs(then: string): string {
  const loop = "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}" +
    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  return `{% set ns = namespace(x=[1], y=[1]) %}${loop}${then}`;
}

const LONG = 17;
const HUGE = 60;

const TOO_MUCH_WORK: Record<string, string> = {
  "nested loops": "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
  "nested loops that print nothing": "{% set r = range(9999) %}{% for a in r %}" +
    "{% for b in r if false %}{% endfor %}{% endfor %}",
  "doubled text": doubled("aaaa", HUGE, "{{ ns.x }}"),
  "text doubled by blocks": "{% set ns = namespace(x='aaaa') %}{% for i in range(60) %}" +
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
  "a doubled list":
    "{% set ns = namespace(x=range(9)|list) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
  "text of the template, many times": `{% for i in range(99999) %}${
    "a".repeat(99_999)
  }{% endfor %}`,
  "a macro that branches":
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(30) }}",
  "macros defined in a loop": `{% for i in range(9999) %}${
    "{% macro f() %}{% endmacro %}".repeat(99)
  }{% endfor %}`,
  "lookups of missing names": `{% for i in range(9999) %}${"{{ a }}".repeat(999)}{% endfor %}`,
  "replace, growing": doubled("aaaa", LONG, "{{ ns.x.replace('a', ns.x) }}"),
  "replace of nothing": doubled("aaaa", LONG, "{{ ns.x|replace('', ns.x) }}"),
  "replace in a filter block": doubled(
    "aaaa",
    LONG,
    "{% filter replace('a', ns.x) %}{{ ns.x }}{% endfilter %}",
  ),
  "a wide margin": "{{ 'a\\nb'|indent(10**9) }}",
  "a wide margin in a filter block": "{% filter indent(10**12) %}a\nb{% endfilter %}",
  "a wide margin of many lines": doubled("a\\n", LONG, "{{ ns.x|indent(99999) }}"),
  "a wide margin of JSON": "{{ [1]|tojson(indent=10**9) }}",
  "a wide margin of many items of JSON": "{{ range(9999)|list|tojson(indent=99999) }}",
  "long separators of JSON": doubled(
    "aaaa",
    LONG,
    "{{ range(9999)|list|tojson(separators=[ns.x, ns.x]) }}",
  ),
  "a long separator": doubled("aaaa", LONG, "{{ range(9999)|join(ns.x) }}"),
  "many pieces": doubled("a a ", 20, "{{ ns.x.split() }}"),
  "many letters of a namespace": doubled("aaaa", 20, "{{ namespace([ns.x]) }}"),
  "many long searches": doubled(
    "aaaa",
    20,
    "{% for i in range(9999) %}{{ ns.x[:99] ~ 'b' in ns.x }}{% endfor %}",
  ),
  "many long comparisons": doubled(
    "aaaa",
    20,
    "{% set y = ns.x ~ 'a' %}{% set z = ns.x ~ 'a' %}{% for i in range(9999) %}{{ y == z }}{% endfor %}",
  ),
  "many long slices": doubled(
    "aaaa",
    LONG,
    "{% for i in range(9999) %}{% set y = ns.x[::2] %}{% endfor %}",
  ),
  "many long conversions": doubled(
    "aaaa",
    LONG,
    "{% for i in range(9999) %}{% set y = ns.x|upper|trim|title %}{% endfor %}",
  ),
  "a long attribute path": doubled(
    "a.a.",
    LONG,
    "{{ range(99)|map(attribute=ns.x, default=1)|list }}",
  ),
  "a value that is large when written as JSON": billionLaughs("{{ ns.x|tojson }}"),
  "a value that is large when printed": billionLaughs("{{ ns.x }}"),
  "a value that is large when joined": billionLaughs("{{ [ns.x]|join }}"),
  "a value that is large when added to text": billionLaughs("{{ 'a' ~ ns.x }}"),
  "a value that is large when compared": billionLaughs("{{ ns.x == ns.y }}"),
  "a value that is large when searched for": billionLaughs("{{ ns.x in [ns.y] }}"),
  "a value that is large when sorted": billionLaughs("{{ [ns.x]|sort }}"),
  "a wide format": "{{ '%1000000000d' % 1 }}",
  "a wide field": "{{ '{:>1000000000}'.format(1) }}",
  "a wide center": "{{ 'a'.center(10**9) }}",
  "repeated text": "{{ 'ab' * 10**9 }}",
  "a repeated list": "{{ [1, 2] * 10**9 }}",
  "wide batches": "{{ [1]|batch(10**9, 0)|list }}",
  "many slices": "{{ [1]|slice(10**9)|list }}",
  "many powers": "{% for i in range(9999) %}{% set x = 3**9999 %}{% endfor %}",
  "long ends of many lines": doubled(
    "a a ",
    LONG,
    "{{ ns.x|wordwrap(1, wrapstring=ns.x) }}",
  ),
  "many slices of a long list": "{% set l = range(99999)|list %}" +
    "{% for i in range(9999) %}{% set y = l[1:] %}{% endfor %}",
  "many long words": doubled("aaaa", LONG, "{{ (ns.x ~ ' ' ~ ns.x)|wordwrap(1) }}"),
  "many links": doubled("a.com ", LONG, "{{ ns.x|urlize(target=ns.x) }}"),
  "a value that is large when laid out": billionLaughs("{{ ns.x|pprint }}"),
  "many large ints": "{{ [9**4000] * 10**6 }}",
  "many large ints as JSON": "{{ ([9**4000] * 10**5)|tojson }}",
  "many large ints read":
    "{% set x = '9' * 4000 %}{% for i in range(9999) %}{{ x|int is odd }}{% endfor %}",
  "a long date": doubled("%c%c", 24, "{{ strftime_now(ns.x) }}"),
};

for (const [name, source] of Object.entries(TOO_MUCH_WORK)) {
  Deno.test(`too much work: ${name}`, () => {
    const error = assertThrows(
      () => new ChatTemplate(source).render([], OPTIONS),
      ForgeError,
      "the chat template exceeds the work allowed for its messages",
    );
    assertEquals(error.code, "bad_model");
  });
}

const TOO_DEEP: Record<string, string> = {
  "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
  "a call block that calls itself":
    "{% macro f() %}{% call f() %}{{ caller }}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}",
  "a recursive loop": "{% set x = [1] %}{% for i in x recursive %}{{ loop(x) }}{% endfor %}",
  "a block that renders itself": "{% block a %}{{ self.a() }}{% endblock %}",
  "parentheses": `{{ ${"(".repeat(99_999)}1${")".repeat(99_999)} }}`,
  "a chain of operators": `{{ 1${"+1".repeat(99_999)} }}`,
  "negations": `{{ ${"not ".repeat(60_000)}1 }}`,
  "open brackets": `{{ ${"[".repeat(99_999)}`,
  "blocks": "{% if 1 %}".repeat(20_000),
  "a chain of filters": `{{ 1${"|abs".repeat(60_000)} }}`,
  "lists": "{% set ns = namespace(x=[1]) %}{% for i in range(20000) %}{% set ns.x = [ns.x] %}" +
    "{% endfor %}{{ ns.x|tojson }}",
};

for (const [name, source] of Object.entries(TOO_DEEP)) {
  Deno.test(`too deep: ${name}`, () => {
    const error = assertThrows(
      () => new ChatTemplate(source).render([], OPTIONS),
      ForgeError,
      "nest",
    );
    assertEquals(error.code, "bad_model");
  });
}

/** Statements and expressions of every kind, which nest a few levels. */
const SHALLOW = [
  "{{ 1 }}",
  "{% if 0 %}{% elif 1 %}a{% else %}b{% endif %}",
  "{% for a in [1, 2] if a %}{% break %}{% else %}{{ a }}{% endfor %}",
  "{% for a in [1, 2] %}{% continue %}{% endfor %}",
  "{% for a in [[1]] recursive %}{{ loop([]) }}{% endfor %}",
  "{% set a, b = 1, 2 %}{% set a %}b{% endset %}",
  "{% macro g(a, b=1) %}{{ a }}{{ caller() if caller }}{% endmacro %}{{ g(1) }}",
  "{% macro h() %}{{ caller(1) }}{% endmacro %}{% call(a) h() %}{{ a }}{% endcall %}",
  "{% filter upper %}a{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}",
  "{{ [1, (2,), {'a': 3}]|tojson }}{{ 'abc'[1:2] ~ 'abc'|upper }}{{ {'a': 1}.a }}",
  "{{ not (1 < 2 < 3) or (1 in [1] and 2 is odd) }}{{ 1 if 0 else -2 ** 2 }}",
  "{{ [3, 1]|sort|map('string')|join(',') }}{{ namespace(a=1).a }}{{ missing }}",
];

/** Returns a template that calls a macro to a depth, after some text. */
function nestedTo(depth: number, before: string): string {
  return "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}" +
    `${before}{{ f(${depth}) }}`;
}

Deno.test("no statement or expression changes the depth that is allowed after it", () => {
  const renders = (source: string) => {
    try {
      new ChatTemplate(source).render([], OPTIONS);
      return true;
    } catch (error) {
      assertEquals((error as Error).message.includes("nests or recurses"), true, source);
      return false;
    }
  };
  // The deepest calls that are allowed.
  let most = 1;
  while (renders(nestedTo(most + 1, ""))) most++;
  assert(most > 20 && most < 400, `${most}`);
  for (const shallow of SHALLOW) {
    const before = shallow.repeat(3);
    assert(renders(nestedTo(most, before)), shallow);
    assert(!renders(nestedTo(most + 1, before)), shallow);
  }
});

Deno.test("a template that is too long is not parsed", () => {
  assertThrows(() => new ChatTemplate("a".repeat(300_000)), ForgeError, "at most 262144");
});

Deno.test("long runs of spaces, braces, alternatives and digits are parsed quickly", () => {
  const long = (unit: string) => unit.repeat(Math.floor(200_000 / unit.length));
  assertEquals(new ChatTemplate(`a${long(" ")}b`).render([], OPTIONS).length, 200_002);
  assertEquals(new ChatTemplate(`{{ 1 ${long(" ")}}}`).render([], OPTIONS), "1");
  assertEquals(
    new ChatTemplate(`{% if 0 %}${long("{% elif 0 %}")}{% endif %}`).render([], OPTIONS),
    "",
  );
  assertEquals(new ChatTemplate(long("{ ")).render([], OPTIONS).length, 200_000);
  for (const source of [`{{ ${long("9")} }}`, `{{ ${long("9_")} }}`, `{{ '${long("\\x")}`]) {
    assertThrows(() => new ChatTemplate(source), ForgeError, "cannot be parsed");
  }
});

Deno.test("a tuple nested in itself many times cannot be a key", () => {
  const nested = "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}" +
    "{% set ns.x = (ns.x, ns.x) %}{% endfor %}";
  const render = (source: string) => new ChatTemplate(nested + source).render([], OPTIONS);
  assertThrows(() => render("{{ {ns.x: 1} }}"), ForgeError, "too large for a key");
  assertEquals(render("{{ {}[ns.x] is defined }}"), "False");
});

Deno.test("huge ranges and ints are rejected", () => {
  for (
    const source of ["{{ range(10**9) }}", "{{ 2**(10**9) }}", "{{ 7**99999 }}", "{{ 9**9999 }}"]
  ) {
    const error = assertThrows(() => new ChatTemplate(source).render([], OPTIONS), ForgeError);
    assertEquals(error.code, "bad_model");
  }
});

Deno.test("an ordinary template can render a very long conversation", () => {
  const template = new ChatTemplate(
    "{% for message in messages %}{% if message.role == 'user' and '<x>' not in message.content %}" +
      "[{{ message.content.strip().split('</x>')[-1]|trim }}]" +
      "{% else %}{{ message['content']|replace('a', 'b') ~ eos_token }}{% endif %}{% endfor %}",
  );
  const many = Array.from({ length: 20_000 }, (_, index) => ({
    role: index % 2 === 0 ? "user" : "assistant",
    content: "hello",
  }));
  assertEquals(template.render(many, OPTIONS).length, 10_000 * (7 + 9));
  // The cost of a format grows with its own digits only.
  const formats = "{{ '%.2f|%5d|%-4s|%x' % (1.5, 2, 'a', 255) }}{{ '{:.3f}'.format(2.5) }}";
  const table = new ChatTemplate(`{% for i in range(2000) %}${formats}{% endfor %}`);
  assertEquals(table.render([], OPTIONS).length, 2000 * "1.50|    2|a   |ff2.500".length);
  const long = [{ role: "user", content: "word ".repeat(500_000) }];
  assert(template.render(long, OPTIONS).length > 2_000_000);
});

/** Adds up what is paid, without a limit. */
class Meter extends TemplateBudget {
  spent = 0;

  override pay(price: number): void {
    this.spent += price;
  }
}

/** Operations that read no characters of the text or list before them. */
const CONSTANT = new RegExp(
  "^x(\\|(attr|d|default|safe|string)\\b|\\.(starts|ends)with\\('| is (boolean|callable|defined|" +
    "escaped|false|filter|float|integer|iterable|mapping|none|number|sequence|string|test|true|" +
    "undefined|eq\\(9\\)|equalto\\(9\\)|ne\\(9\\)))",
);

Deno.test("every operation on text pays for the characters that it reads and makes", () => {
  const run = (source: string, length: number, unit: string) => {
    const text = unit.repeat(length / unit.length);
    const meter = new Meter(0);
    const { body } = new TemplateProgram(source);
    const made = new Interpreter(body, [["x", text], ["y", `${text} `.trim()]], meter).render();
    return { paid: meter.spent, made: made.length };
  };
  const growth = (source: string, of: "paid" | "made", unit: string) =>
    (run(source, 400, unit)[of] - run(source, 200, unit)[of]) / 200;
  const texts = ["", "'A'", "9", "2", "500", "y", "' '", "'A', 'bcd'", "{97: 'x'}", "'%s', 1"];
  const operations = [
    ...Array.from(
      FILTERS.keys(),
      (name) => texts.flatMap((given) => [`x|${name}(${given})`, `x|${name}(${given})|list`]),
    ),
    ...Array.from(TEXT_METHODS.keys(), (name) => texts.map((given) => `x.${name}(${given})`)),
    ...Array.from(
      [...TESTS.keys()].filter((name) => /^\w+$/.test(name)),
      (name) => ["", "(9)", "(y)"].map((given) => `x is ${name}${given}`),
    ),
    ...["x + y", "x ~ y", "x == y", "x < y", "x in y", "x * 2", "x[1:]", "x[::2]", "x[7]"]
      .map((source) => [source]),
    ...[
      "'%s' % x",
      "'%a' % x",
      "'%r' % x",
      "x % ()",
      "'{}'.format(x)",
      "x.format()",
      "[x]|string",
      "x|safe ~ '<'",
    ]
      .map((source) => [source]),
  ];
  const idle: string[] = [];
  for (const variants of operations.filter(({ length }) => length > 0)) {
    let works = false;
    // The second text grows when it is escaped, in each way.
    const cases = variants.flatMap((source) => [[source, "Ab 1."], [source, "é<'\\&"]] as const);
    for (const [operation, unit] of cases) {
      try {
        const paid = growth(`{% set z = ${operation} %}`, "paid", unit);
        const made = growth(`{{ ${operation} }}`, "made", unit);
        works = true;
        if (CONSTANT.test(operation)) continue;
        // A character costs at least 1 to read and 4 to make.
        assert(paid >= Math.max(1, made >= 1.5 ? 4 * made : 0), `${operation}: ${paid}, ${made}`);
      } catch (error) {
        if (!(error instanceof TemplateError)) throw error;
      }
    }
    if (!works) idle.push(variants[0]!);
  }
  const others =
    "|abs() |dictsort() |filesizeformat() |items() |map() |round() |sum() |xmlattr() " +
    "divisibleby even odd";
  assertEquals(idle.map((name) => name.replace(/x( is )?/, "")), others.split(" "));
});

Deno.test("400 evaluations may be open at once", () => {
  const budget = new TemplateBudget(0);
  for (let i = 0; i < 400; i++) budget.enter();
  assertThrows(() => budget.enter(), ForgeError, "more than 400 levels deep");
  budget.leave();
  assertEquals(budget.nested(() => 1), 1);
});
