import { assert } from "@std/assert";
import { ChatTemplate } from "../../src/tokenizer/chat_template.ts";
import jinja from "../unit/tokenizer/jinja_constructs.json" with { type: "json" };
import { fuzz } from "./harness.ts";
import { mutateText } from "./mutate.ts";

/** Statements, operators, filters, tests and methods of every kind. */
const TEMPLATE = `{%- set ns = namespace(n=0, text='', list=[]) -%}
{%- macro show(message, indent=2) -%}
  {{ '<' ~ message.role ~ '>' + message['content'] | trim | indent(indent) }}
  {%- if caller is defined %}{{ caller() }}{% endif %}
{%- endmacro -%}
{%- macro tree(n) %}{{ n }}{% if n > 0 %}{{ tree(n - 1) }}{% endif %}{% endmacro -%}
{%- for message in messages[::-1] if message.role != 'system' %}
  {%- set ns.n = ns.n + loop.index0 * 2 ** 3 // 3 %}
  {%- set ns.text = (ns.text ~ message.content).replace('a', 'bb').split('\\n')[-1].strip(' ') %}
  {%- set ns.list = ns.list + [message.content | length, none, {'k': [1.5, true]}] %}
  {%- if loop.first and message.content is string %}{{ show(message, indent=4) }}
  {%- elif 'x' in message.content or message.content == ns.list %}{% continue %}
  {%- else %}{% call show(message) %}body{% endcall %}{% endif %}
{%- else %}none{% endfor -%}
{%- for key, value in {'items': 1, 'b': [2]}.items() %}{{ key }}{{ value }}{% endfor -%}
{%- filter upper %}{{ ns.text | title }}{{ ns.list | join(', ') }}{% endfilter -%}
{%- set block %}{{ messages | tojson(indent=2) }}{{ messages | map(attribute='role') | list }}
{%- endset %}{{ block | replace('e', 'E') | string }}
{{ range(1, 10, 2) | list | sort(reverse=true) | first }}{{ tree(3) }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ strftime_now('%d %b %Y') }}
{{ 'yes' if tools is none else raise_exception('tools ' + tools | string) }}{{ bos_token }}
{%- with a = 1, b = 'x' %}{{ '%5.2f|%-4s' % (a, b) ~ '{:>4}{0!r}'.replace('0', '').format(a, b) }}{% endwith -%}
{%- raw %}{{ raw }}{% endraw -%}
{%- autoescape true %}{{ '<' ~ '&lt;' | safe }}{{ 'a<' | replace('a', '>') }}{% endautoescape -%}
{%- for item in [[1, [2]], 3] recursive %}{{ loop(item) if item is iterable else item }}{{ loop.cycle('a', 'b') }}
{%- if loop.changed(item) %}{{ loop.nextitem }}{% endif %}{% endfor -%}
{{ messages | groupby('role') | map('first') | join(',') }}{{ [3, 1] | sum + 7 // -2 % 3 - 1.5e3 }}
{{ 'a-b c' | wordwrap(2) }}{{ 'x.com' | urlize }}{{ {'b': (1, none), 2: 1.0} | dictsort(by='value') | pprint if false }}
{{ 1 < 2 <= 2 != 3 and not 'a' in ['b'] }}{{ 'aXb'.partition('X')[::-1] }}{{ '12'.zfill(4) | int }}
{%- block named %}{{ joiner('|')() }}{{ cycler(1, 2).next() }}{% endblock -%}
{%- generation %}{{ [1, 2, 3] | batch(2, 'x') | list }}{% endgeneration -%}
{%- if add_generation_prompt %}{{ (1, 'two') }}{{ [] | first is defined }}{% endif %}`;

const MESSAGES = [
  { role: "system", content: "Be terse." },
  { role: "user", content: "a line\nand another" },
  { role: "assistant", content: "yes", tool_calls: [{ function: { name: "f" } }] },
];
const OPTIONS = { addGenerationPrompt: true, bosToken: "<s>", eosToken: "</s>" };

fuzz("a chat template", 2000, (random) => {
  const template = new ChatTemplate(mutateText(TEMPLATE, random));
  assert(typeof template.render(MESSAGES, OPTIONS) === "string");
});

fuzz("small templates", 4000, (random) => {
  const pick = () => String(jinja.constructs[random.int(0, jinja.constructs.length - 1)]![0]);
  const template = new ChatTemplate(mutateText(pick() + pick(), random));
  const text = template.render(MESSAGES, { ...OPTIONS, extra: jinja.variables });
  assert(typeof text === "string");
});

Deno.test("damaged chat templates render or throw a ForgeError", () => {
  const text = new ChatTemplate(TEMPLATE).render(MESSAGES, OPTIONS);
  assert(text.includes("<assistant>yes") && text.endsWith("(1, 'two')False"), text);
  assert(text.includes("{{ raw }}") && text.includes("Bom") === false, text);
});
