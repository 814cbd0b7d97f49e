import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import {
  type ChatMessage,
  ChatTemplate,
  type ChatTemplateOptions,
} from "../../../src/tokenizer/chat_template.ts";
import { TemplateProgram } from "../../../src/tokenizer/template/program.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";

const MESSAGES: ChatMessage[] = [
  { role: "system", content: " Be terse.\n" },
  { role: "user", content: "<think>x</think>\n\nyes" },
];

function render(source: string, extra: Record<string, unknown> = {}): string {
  const options = { addGenerationPrompt: true, bosToken: "<s>", eosToken: "</s>", extra };
  return new ChatTemplate(source).render(MESSAGES, options);
}

/** One rendering by transformers, or the message of the exception that the template raised. */
interface ReferenceCase {
  template: string;
  case: string;
  messages: ChatMessage[];
  add_generation_prompt: boolean;
  bos_token: string;
  eos_token: string;
  date_string: string;
  expected?: string;
  error?: string;
}

Deno.test({
  name: "templates of real models render as transformers renders them",
  ignore: !sharedAvailable("chat-templates", "expected.json"),
  fn: () => {
    const path = sharedPath("chat-templates", "expected.json");
    const cases: ReferenceCase[] = JSON.parse(Deno.readTextFileSync(path));
    for (const reference of cases) {
      const source = Deno.readTextFileSync(sharedPath("chat-templates", reference.template));
      const template = new ChatTemplate(source);
      const options: ChatTemplateOptions = {
        addGenerationPrompt: reference.add_generation_prompt,
        bosToken: reference.bos_token,
        eosToken: reference.eos_token,
        extra: { date_string: reference.date_string },
      };
      const name = `${reference.template} ${reference.case}`;
      if (reference.expected !== undefined) {
        assertEquals(template.render(reference.messages, options), reference.expected, name);
      } else {
        const reason = reference.error ?? "an error";
        const thrown = () => template.render(reference.messages, options);
        assertEquals(assertThrows(thrown, ForgeError, reason).code, "bad_input");
      }
    }
    assert(cases.length >= 24, `${cases.length} cases`);
  },
});

// Expected texts were printed by Python's Jinja.
const PYTHON_CASES: [source: string, expected: string][] = [
  ["{{ ('<b>{}</b>'|safe).format('<i>')|e }}", "<b>&lt;i&gt;</b>"],
  ["{{ true }}|{{ none }}|{{ 1.0 }}|{{ 2.5 }}|{{ nothing }}", "True|None|1.0|2.5|"],
  [
    "{{ [1, 'a', none, [true]] }}{{ {'a': 1.5} }}{{ (1, 2) }}",
    "[1, 'a', None, [True]]{'a': 1.5}(1, 2)",
  ],
  [`{{ ["a'b", 'a"b', 'a\\n'] }}`, `["a'b", 'a"b', 'a\\n']`],
  ["{{ 'a' ~ 1 ~ none ~ true ~ [1] }}", "a1NoneTrue[1]"],
  ["{{ [1] == [1] }}{{ '1' == 1 }}{{ true == 1 }}{{ none == nothing }}", "TrueFalseTrueFalse"],
  ["{{ {'a': [1]} == {'a': [1.0]} }}{{ (1, 2) == [1, 2] }}", "TrueFalse"],
  [
    "{{ [1] in [[1]] }}{{ 'b' in 'abc' }}{{ 1 in {'k': 1} }}{{ 'x' in nothing }}",
    "TrueTrueFalseFalse",
  ],
  ["{{ messages[1].content.split('</think>')[-1].lstrip('\\n') }}", "yes"],
  ["{{ 'xyaxy'.strip('xy') }}{{ 'axx'.rstrip('x') }}{{ '😀a😀'.strip('😀') }}", "aaa"],
  ["{{ '\\ufeffa '.strip()|length }}", "2"],
  [
    "{{ 'aXbXc'.split('X', 1) }}{{ ' a  b c '.split(none, 1) }}{{ ' a b '.split() }}",
    "['a', 'bXc']['a', 'b c ']['a', 'b']",
  ],
  [
    "{{ 'abc'.replace('', '-') }}{{ 'aXbX'|replace('X', '', 1) }}{{ ''.replace('', 'x') }}",
    "-a-b-c-abXx",
  ],
  [
    "{{ 'hELLO wO'.title() }}|{{ \"don't\".title() }}|{{ \"don't\"|title }}|{{ 'hELLO'|capitalize }}",
    "Hello Wo|Don'T|Don't|Hello",
  ],
  ["{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('b') }}", "TrueFalse"],
  [
    "{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\nb'|indent('>') }}",
    "a\n    b\n\n    c|  a\n  b|a\n>b",
  ],
  ["{{ '日本😀'|length }}{{ [1, 2]|length }}{{ {}|length }}", "320"],
  ["{{ [1, none, true, ['a']]|join('-') }}{{ ['a', 'b']|join }}", "1-None-True-['a']ab"],
  ["{{ {'b': [1, 'é<'], 'a': none}|tojson }}", '{"b": [1, "é<"], "a": null}'],
  ["{{ {'b': [1]}|tojson(indent=2) }}", '{\n  "b": [\n    1\n  ]\n}'],
  [
    "{% for k, v in {'items': 1, 'keys': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "items=1;keys=2;",
  ],
  ["{% set d = {'items': 1} %}{{ d.items() is defined }}{{ d['items'] }}", "True1"],
  [
    "{% for i in [1, 2] %}{{ x is defined }}{% set x = i %}{{ x }}{% endfor %}{{ x is defined }}",
    "False1False2False",
  ],
  [
    "{% set x = 5 %}{% macro f() %}{{ x }}{{ y is defined }}{% endmacro %}" +
    "{% for x in [1] %}{% set y = 1 %}{{ f() }}{% endfor %}",
    "5False",
  ],
  ["{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, b=3) }}", "1213"],
  [
    "{% macro t(n) %}{{ n }}{% if n %}({{ t(n - 1) }}){% endif %}{% endmacro %}{{ t(3) }}",
    "3(2(1(0)))",
  ],
  ["{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}body{% endcall %}", "<body>"],
  [
    "{% set ns = namespace(n=0, l=[]) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}" +
    "{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.n }}{{ ns.l }}",
    "6[0, 1, 2, 3]",
  ],
  ["{% filter upper %}abc{% endfilter %}{% set x %}block{% endset %}{{ x }}", "ABCblock"],
  [
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}" +
    "{% endif %}{{ i }}{% endfor %}",
    "02",
  ],
  [
    "{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% break %}{% endfor %}",
    "1",
  ],
  ["{{ range(3)|list }}{{ range(5, 0, -2)|list }}{{ range(3, 1)|list }}", "[0, 1, 2][5, 3, 1][]"],
  [
    "{{ {} is iterable }}{{ 'a' is iterable }}{{ {} is mapping }}{{ 1 is iterable }}",
    "TrueTrueTrueFalse",
  ],
  ["{{ []|first }}{{ [1]|last }}{{ none|string }}{{ messages[9] is defined }}", "1NoneFalse"],
  ["{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='role')|join }}", "user"],
  ["{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}", "TrueTrueTrue"],
  ["{{ ['\\ue000', '😀', 'z', '\\ud7ff']|sort|join }}", "z\ud7ff\ue000😀"],
  [
    "{{ 2 ** 1e400 }}|{{ (-1) ** 1e400 }}|{{ 0.5 ** 1e400 }}|{{ (-2) ** 1e400 }}",
    "inf|1.0|0.0|inf",
  ],
  [
    "{% autoescape true %}{{ ['<', 'a']|join('&') }}|{{ ['<'|safe, '>']|join('&') }}{% endautoescape %}",
    "&lt;&amp;a|<&amp;&gt;",
  ],
  ["{% generation %}a{% endgeneration %}{#- note -#} b", "ab"],
  ["a\n  {%- if true %}\n b\n  {% endif %}\nc\n", "a b\nc"],
  ["{{ 'a@b:c@d.e a@b.c'|urlize }}", 'a@b:c@d.e <a href="mailto:a@b.c">a@b.c</a>'],
  [
    "{% set a = 1 %}{% macro m(a, b=a) %}{{ a is defined }}{{ b is defined }}{% endmacro %}{{ m() }}",
    "FalseFalse",
  ],
  [
    "{{ {'a': 1}.keys() == {'a': 1, 'b': 2}.keys() }}{{ {'a': 1}.keys() == {'b': 1}.keys() }}" +
    "{{ {'a': 1, 'b': 2}.keys() == {'b': 3, 'a': 4}.keys() }}",
    "FalseFalseTrue",
  ],
  ["{{ bos_token + 'x' + eos_token }}{{ messages[0]['content']|trim }}", "<s>x</s>Be terse."],
];

for (const [source, expected] of PYTHON_CASES) {
  Deno.test(`renders as in Python: ${JSON.stringify(source)}`, () => {
    assertEquals(render(source), expected);
  });
}

Deno.test("the items and slices of every kind of sequence are those of a plain list", () => {
  for (let length = 0; length <= 4; length++) {
    const digits = Array.from({ length }, (_, i) => i);
    const sequences = {
      text: `'${digits.join("")}'`,
      list: `[${digits}]`,
      tuple: `(${digits.map((digit) => `${digit},`).join("")})`,
      range: `range(${length})`,
    };
    for (const [kind, sequence] of Object.entries(sequences)) {
      if (kind === "tuple" && length === 0) continue;
      for (let at = -length - 2; at <= length + 1; at++) {
        const item = `${digits.at(at) ?? ""}`;
        assertEquals(render(`{% set s = ${sequence} %}{{ s[${at}] }}`), item, `${sequence}[${at}]`);
        for (let end = -length - 1; end <= length + 1; end++) {
          const slice = digits.slice(at, end).join("");
          const source = `{% for i in (${sequence})[${at}:${end}] %}{{ i }}{% endfor %}`;
          assertEquals(render(source), slice, `${sequence}[${at}:${end}]`);
        }
      }
    }
  }
});

Deno.test("extra variables reach the template, but cannot replace the messages", () => {
  const source = "{{ enable_thinking }}{{ tools|length }}{{ messages|length }}";
  assertEquals(render(source, { enable_thinking: false, tools: [{}], messages: [] }), "False12");
});

Deno.test("more fields of a message reach the template", () => {
  const call = { name: "f", arguments: { x: [1, null] } };
  const template = new ChatTemplate("{{ messages[0].tool_calls[0]|tojson }}");
  const message: ChatMessage = { role: "assistant", content: "", tool_calls: [call] };
  const options = { addGenerationPrompt: false, bosToken: "", eosToken: "" };
  assertEquals(
    template.render([message], options),
    '{"name": "f", "arguments": {"x": [1, null]}}',
  );
});

Deno.test("strftime_now formats the given or the current time", () => {
  const options = { addGenerationPrompt: false, bosToken: "", eosToken: "" };
  const template = new ChatTemplate("{{ strftime_now('%d %b %Y') }}");
  const now = new Date(2024, 6, 26, 9, 5);
  assertEquals(template.render([], { ...options, now }), "26 Jul 2024");
  const year = new ChatTemplate("{{ strftime_now('%Y') }}").render([], options);
  assert(Number(year) >= 2024, year);
});

Deno.test("raise_exception is bad input, with its reason", () => {
  const error = assertThrows(
    () => render("{{ raise_exception('no ' ~ messages[0].role ~ ' role') }}"),
    ForgeError,
    "no system role",
  );
  assertEquals(error.code, "bad_input");
});

Deno.test("variables that are not JSON are bad input", () => {
  const cycle: Record<string, unknown> = {};
  cycle.self = cycle;
  for (const extra of [{ cycle }, { big: 1n }]) {
    assertEquals(assertThrows(() => render("a", extra), ForgeError, "not JSON").code, "bad_input");
  }
});

// Templates, and a part of the expected error.
const MISTAKES: Record<string, string> = {
  "{{": "cannot be parsed in line 1: the template ends early; expected a value",
  "a\n{% if x %}": "in line 2: the template ends early inside of {% if %}; expected {% elif %}",
  "{{ 'a }}": "the string has no end; expected '",
  "\n\n{# open": "in line 3: the comment has no end",
  "{% raw %}a": "the raw text has no end",
  "{% include 'x' %}": "{% include %} needs another template",
  "{% endfor %}": "unexpected {% endfor %}: no tag is open",
  "{% if 1 %}{% endfor %}": "unexpected {% endfor %}: {% if %} is still open",
  "{% nope %}": "unknown tag {% nope %}",
  "{{ (1] }}": 'unexpected "]"; expected ")"',
  "{{ 1 2 }}": 'unexpected "2"; expected }}',
  "{{ 1 '\x9b31m' }}": 'unexpected "\\u{9b}31m"; expected }}',
  "{{ a § b }}": 'unexpected character "§"',
  "a\n\n{{ missing.field }}": 'cannot be rendered in line 3: "missing" is undefined',
  "a\n{{ 'a' + 1 }}\n\n{{ 'b' + 2 }}\n": 'cannot be rendered in line 2: "+" cannot combine',
  "a\r\n{% nope %}\r\nb": "cannot be parsed in line 2: unknown tag",
  "{{ messages[0].a.b }}": '"messages[0].a" is undefined',
  "{{ missing() }}": '"missing" is undefined',
  "{{ 'a' + 1 }}": '"+" cannot combine str and int',
  "{{ 1 // 0 }}": "division by zero",
  "{{ 1 / 0 }}": "division by zero",
  "{{ 1 % 0 }}": "division by zero",
  "{{ 1.5 // 0 }}": "division by zero",
  "{{ missing - 1 }}": '"missing" is undefined',
  "{{ 1 // missing }}": '"missing" is undefined',
  "{{ '{:+}'.format('a') }}": "format() has no format",
  "{{ '{:,}'.format('a') }}": "format() has no format",
  "{{ '{:=5}'.format('a') }}": "format() has no format",
  "{{ '{:d}'.format('a') }}": "format() has no format",
  "{{ 'a'.nope() }}": '"(…).nope" is undefined',
  "{{ messages.append(1) }}": "append() changes its object",
  "{{ [1]|nope }}": 'unknown filter "nope"',
  "{{ 1 is nope }}": 'unknown test "nope"',
  "{{ [1]|map('nope')|list }}": 'unknown filter "nope"',
  "{{ [1]|select('nope')|list }}": 'unknown test "nope"',
  "{{ 5() }}": "int cannot be called",
  "{{ -missing }}": '"missing" is undefined',
  "{{ missing|indent }}": '"missing" is undefined',
  "{{ '%(a)s' % {} }}": 'the dict of % has no key "a"',
  "{{ '%.2001f' % 1 }}": "a format asks for 2001 digits; at most 2000 are valid",
  "{{ '{:5.}'.format(1) }}": 'format() has no format "5." for int',
  "{{ '{:{:{:{}}}}'.format(1, 2, 3, 4) }}": "nested more than 2 levels deep",
  "{{ range(1.5) }}": "range() needs ints, not float",
  "{{ range(1, 2, 0) }}": "the step of range() cannot be 0",
  "{{ range(10**6) }}": "range() makes 1000000 items",
  "{{ 'a'.split('') }}": "a separator that is not empty",
  "{{ 'a'.replace('b') }}": 'got no argument "new"',
  "{{ range }}": "a function cannot be printed",
  "{{ [1]|map('string') }}": "convert it by the filter `list`",
  "{% break %}": "{% break %} is outside of a loop",
  "{{ {}.constructor.constructor('x')() }}": '"(…).constructor" is undefined',
  "{{ ''.__class__.x }}": '"(…).__class__" is undefined',
  "{{ [missing]|tojson }}": 'tojson cannot write a value: "missing" is undefined',
  "{% for a, b in [1] %}{% endfor %}": "int cannot be iterated over",
  "{{ 'a\\N{DASH}' }}": "escapes \\N{…} of characters by name are not supported",
  "{{ '\\xg1' }}": "an escape \\x without a valid hexadecimal number",
  "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}": 'f() has no parameter "b"',
};

for (const [source, reason] of Object.entries(MISTAKES)) {
  Deno.test(`is rejected: ${source}`, () => {
    const error = assertThrows(() => render(source), ForgeError, reason);
    assertEquals(error.code, "bad_model");
    assert(error.message.startsWith("the chat template "), error.message);
    assert(!error.message.includes("\n"), "one line");
  });
}

Deno.test("a template that reads only parts gets a message's text as one part", () => {
  const parts = "{% for m in messages %}{{ m.role }}:{% for p in m.content %}" +
    "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %};{% endfor %}";
  assertEquals(render(parts), "system: Be terse.\n;user:<think>x</think>\n\nyes;");
  const byIndex = "{% for m in messages %}{{ m['content'][0]['text'] }}{% endfor %}";
  assertEquals(render(byIndex), " Be terse.\n<think>x</think>\n\nyes");
  const filtered =
    "{{ messages[1].content|selectattr('type', 'equalto', 'text')|map(attribute='text')|join }}";
  assertEquals(render(filtered), "<think>x</think>\n\nyes");
  const inMacro =
    "{% macro show(c) %}{% for p in c %}{% if p.type == 'text' %}{{ p.text }}{% endif %}" +
    "{% endfor %}{% endmacro %}{{ show(messages[1].content) }}";
  assertEquals(render(inMacro), "<think>x</think>\n\nyes");
  const either = "{% for m in messages %}{% if m.content is string %}{{ m.content }}" +
    "{% else %}{{ m.content[0].text }}!{% endif %}{% endfor %}";
  assertEquals(render(either), " Be terse.\n<think>x</think>\n\nyes");
});

Deno.test("templates that treat content as a list read parts, others do not", () => {
  const reading = [
    ...["string", "iterable", "sequence", "mapping"].map((test) => `{{ m.content is ${test} }}`),
    ...["selectattr", "rejectattr", "map"].map((filter) => `{{ m.content|${filter}('type') }}`),
    ...["text", "image", "image_url", "video", "audio"].map((type) => `{{ p.type == '${type}' }}`),
    "{% for p in m.content %}{% endfor %}",
    "{% for p in m['content'][1:] %}{% endfor %}",
    "{% for p in content|list %}{% endfor %}",
    "{% for p in user_content|list|reverse %}{% endfor %}",
    "{{ m.content[0].text }}",
    "{{ m['content'][0]['text'] }}",
    "{{ (m.content|list)[0].text }}",
    "{{ 'image' != p['type'] }}",
    "{{ 1 == 2 == type == 'text' }}",
    "{% macro f(m) %}{% if true %}{{ x(m.content is string) }}{% endif %}{% endmacro %}",
  ];
  for (const source of reading) {
    assertEquals(new TemplateProgram(source).readsParts, true, source);
  }
  const others = [
    "{{ m.content }}",
    "{{ m.content is defined }}",
    "{{ m.role is string }}",
    "{{ m.content|upper }}",
    "{{ m.parts|map('x') }}",
    "{% for p in m.parts %}{% endfor %}",
    "{% for m in messages %}{{ m.content }}{% endfor %}",
    "{{ m.content[0] }}",
    "{{ m.content.text }}",
    "{{ m.parts[0].text }}",
    "{{ m.parts[0]['text'] }}",
    "{{ p.type == 'function' }}",
    "{{ p.kind == 'text' }}",
    "{{ m[content] is string }}",
    "{% filter map('upper') %}a{% endfilter %}",
    "{% filter upper|map('upper') %}a{% endfilter %}",
  ];
  for (const source of others) {
    assertEquals(new TemplateProgram(source).readsParts, false, source);
  }
});

Deno.test("parts are tried if the last text of the messages is missing, and only then", () => {
  const source = "{% if messages[0].content is string %}{{ messages[0].content }}" +
    "{% else %}{% for m in messages %}[{{ m.content[0].text }}]{% endfor %}{% endif %}";
  const template = new ChatTemplate(source);
  const options = { addGenerationPrompt: false, bosToken: "", eosToken: "" };
  const rendered = (...contents: string[]) =>
    template.render(contents.map((content) => ({ role: "user", content })), options);
  assertEquals(rendered("a", "b"), "[a][b]");
  assertEquals(rendered("a", " b "), "[a][ b ]");
  assertEquals(rendered("a b", "b"), "a b");
  assertEquals(rendered(" a ", " "), " a ");
  assertEquals(rendered(" ", ""), " ");
});

Deno.test("a template names the texts that stand in quotes", () => {
  const template = new ChatTemplate("{{ m.role == 'tool' or m.role == \"user\" }} system");
  assertEquals(["tool", "user", "system", "too", "role"].map((text) => template.names(text)), [
    true,
    true,
    false,
    false,
    false,
  ]);
});

Deno.test("a template that does not read parts never gets them", () => {
  assertEquals(render("{% for m in messages %}{{ m.role }};{% endfor %}"), "system;user;");
  assertEquals(render("{{ messages[1].content|reverse }}"), "sey\n\n>kniht/<x>kniht<");
  assertEquals(render("{{ messages[1].content[0] }}"), "<");
  assertThrows(() => render("{{ messages[1].content + 1 }}"), ForgeError, "cannot combine");
});

Deno.test("the parts of a message are never printed as a list", () => {
  const source = "{% if messages[0].content is string %}{{ messages[1].content|upper }}" +
    "{% else %}{{ messages[1].content }}{% endif %}";
  assertEquals(render(source), "<THINK>X</THINK>\n\nYES");
  const failing = "{% if messages[0].content is string %}{{ 1 + 'a' }}{% endif %}" +
    "{{ messages[1].content }}";
  assertThrows(() => render(failing), ForgeError, "cannot combine int and str");
});

Deno.test("null content and parts of the request reach the template unchanged", () => {
  const template = new ChatTemplate(
    "{% for m in messages %}{% if m.content is none %}none{% elif m.content is string %}{{ m.content }}" +
      "{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %};{% endfor %}",
  );
  const messages = [
    { role: "assistant", content: null, tool_calls: [] },
    { role: "user", content: [{ type: "text", text: "a" }, { type: "text", text: "b" }] },
    { role: "tool", content: "c" },
  ] as unknown as ChatMessage[];
  const options = { addGenerationPrompt: false, bosToken: "", eosToken: "" };
  assertEquals(template.render(messages, options), "none;[a][b];c;");
  // For templates that require text in parts, null stays null.
  const parts = new ChatTemplate(
    "{% for m in messages %}{% if m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}" +
      "{% else %}-{% endif %}{% endfor %}",
  );
  assertEquals(parts.render([messages[2]!, messages[0]!], options), "c-");
});
