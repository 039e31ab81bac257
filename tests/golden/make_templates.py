#!/usr/bin/env python3
"""Writes templates.json: templates, variables, and what Jinja makes of them (null: it refuses).

    python3 tests/golden/make_templates.py > tests/golden/templates.json

Run with a Python that has jinja2 3.1. The templates are our own. Those under CHATS have the shapes, and
together all the constructs, of the templates that models of the families Llama, Qwen, Mistral, SmolLM,
Phi and Gemma come with.
"""
import json

import template_oracle
from template_kinds import KINDS

SAY = [{"role": "system", "content": " Be brief. "},
       {"role": "user", "content": "Öl\nand 'water'?"},
       {"role": "assistant", "content": "<t>why</t>\n\nNo."},
       {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}]}]
TOOL = {"type": "function", "function": {"name": "add", "description": "sums <a> & \"b\"", "parameters": {
    "type": "object", "properties": {"a": {"type": "number", "default": 1.5}, "b": {"type": "integer", "enum": [1, 2]}},
    "required": ["a"]}}}
CALLS = SAY[:2] + [{"role": "assistant", "content": None, "tool_calls": [
    {"id": "x1", "function": {"name": "add", "arguments": {"a": 1e-7, "b": -3, "c": [True, None, "é\t"]}}}]},
    {"role": "tool", "tool_call_id": "x1", "name": "add", "content": "4"}]

CHATS = {
    "turns": """{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] | trim + '\\n\\n' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first, rest = '', messages -%}
{%- endif -%}
{{ bos_token }}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('turns alternate') -}}
    {%- endif -%}
    {%- if message['content'] is string -%}
        {%- set text = message['content'] -%}
    {%- else -%}
        {%- set text = message['content'] | selectattr('type', 'equalto', 'text') | map(attribute='text') | join(' ') -%}
    {%- endif -%}
    {{ '<' + message.role + '>' + (first if loop.first else '') + text | trim + '</>\\n' }}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<assistant>\\n' }}{% endif %}
""",
    "blocks": """{% for message in messages %}
    {% if loop.first and message['role'] != 'system' %}
<|s|>default<|e|>
    {% endif %}
  {% if message.content is string %}
<|{{ message['role'] | upper }}|>
{{ message['content'] }}<|e|>
  {% elif message.content is iterable and message.content is not mapping %}
    {% for part in message.content if part.type == 'text' %}
[{{ loop.index }}/{{ loop.length }}{{ '' if loop.last else ',' }}{{ part['text'] }}]
    {% else %}
nothing
    {% endfor %}
  {% else %}
{# no text #}{{ message.tool_calls | length }} calls
  {% endif %}
{% endfor %}
{% if add_generation_prompt -%}
<|a|>
{% endif %}
""",
    "tools": """{%- macro shown(value) %}
{%- if value is mapping %}{
{%- for key, each in value | dictsort %}{{ key }}:{{ shown(each) }}{% if not loop.last %},{% endif %}{% endfor %}}
{%- elif value is string %}"{{ value }}"
{%- elif value is sequence %}[{% for each in value %}{{ shown(value=each) }}{{ ',' if not loop.last }}{% endfor %}]
{%- else %}{{ value }}{% endif %}
{%- endmacro %}
{%- set ns = namespace(seen=0, system='', last=-1) %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% set ns.system = ns.system ~ message.content %}{% continue %}{% endif %}
    {%- set ns.seen = ns.seen + 1 %}
    {%- if message.tool_calls is defined and message.tool_calls %}
        {%- for call in message.tool_calls %}
            {%- set call = call.function if call.function else call %}
            {{- '\\n<call>' ~ {"name": call.name, "arguments": call.arguments} | tojson ~ '</call>' }}
            {{- call.arguments | tojson(indent=2) }}
            {{- shown(call.arguments) }}
        {%- endfor %}
    {%- elif message['role'] == "tool" %}
        {{- '\\n<result>' + message.get('name', '?') + '=' + message.content + '</result>' }}
    {%- else %}
        {{- '\\n' ~ message.role ~ ': ' ~ message.content }}
    {%- endif %}
{%- endfor %}
{%- if tools is not none and tools %}
{% set names %}{% for tool in tools %}{{ tool.function.name }};{% endfor %}{% endset %}
Tools {{ names }}: {{ tools | tojson(indent=4) }}
{{ tools[0]['function']['parameters'].properties.items() | list | length }}
{%- for name, how in tools[0].function.parameters.properties | items %} {{ name }}={{ how.type }}{% endfor %}
{%- endif %}
{{ ns.system }}{{ ns.seen }}
""",
    "thoughts": """{%- set ns = namespace(open=true, at=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and not(message.content is string and message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.open = false %}{%- set ns.at = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if '</t>' in content %}
            {%- set thought = content.split('</t>')[0].rstrip('\\n').split('<t>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</t>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- generation %}[{{ thought }}|{{ content.strip() }}|{{ loop.index0 > ns.at }}]{% endgeneration %}
    {%- else %}
        {{- message.role[0] + content.replace('\\n', '/')[:9] }}
    {%- endif %}
{%- endfor %}
{%- if enable_thinking is defined and enable_thinking is false %}no thought{% endif %}
{{- '' if date_string is defined else strftime_now('%d %b %Y') }}
""",
}
MESSAGES = [
    {"messages": SAY[1:3], "add_generation_prompt": True, "bos_token": "<s>"},
    {"messages": SAY, "add_generation_prompt": False, "bos_token": "<s>", "tools": None, "enable_thinking": False},
    {"messages": SAY[2:], "add_generation_prompt": True, "tools": []},
    {"messages": CALLS, "tools": [TOOL], "add_generation_prompt": True},
    {"messages": []},
]

# One expression or construct each.
PIECES = r"""
{{ 1 + 2 * 3 - 4 // 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1.5 + 1 }}
{{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 100.0 }} {{ 1e22 }} {{ -0.0 }}
{{ -2 ** 2 }} {{ (-3) | abs }} {{ +4 }} {{ - 5 }} {{ 3 - -2 }}
{{ true and 0 or 'x' }} {{ not none }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' in 'bab' }} {{ 4 not in [1, 2] }}
{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }} {{ {'a': 1} == {'a': 1} }}
{{ 'b' > 'a' }} {{ 'é' > 'z' }} {{ 2 >= 2.0 }} {{ none is none }} {{ x is undefined }} {{ text is defined }}
{{ 1 ~ 'a' ~ none ~ true ~ 1.0 ~ [1, 'b'] ~ missing }}
{{ 'a' 'b' "c" }} {{ 'it\'s' }} {{ "q\"\n\t\\ \x41\u00e9\U0001F600\z" }}
{{ [1, 'a', none, true, 2.5, (1,), (), {'k': 'v', 2: [ ]}] }}
{{ ['it\'s', 'say "x"', 'both \' "', 'a\nb\tc\\', 'é'] }}
{{ 'abc'[0] }} {{ 'abc'[-1] }} {{ 'äöü'[1] }} {{ 'äöü'[::-1] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[-3:] }} {{ 'abc'[5] }}|
{{ [1, 2, 3, 4][1:] }} {{ [1, 2, 3, 4][::2] }} {{ [1, 2, 3][::-1] }} {{ [1, 2, 3][5:] }} {{ [1, 2, 3][-2:-1] }} {{ (1, 2, 3)[:2] }}
{{ [1, 2, 3][9] is defined }} {{ {'a': 1}.b is defined }} {{ {'a': 1}['a'] }} {{ {'items': 1}['items'] }} {{ [7, 8].1 }}
{{ 'x' if false }}|{{ 'y' if 1 else 'z' }}|{{ 1 if 0 else 2 if 0 else 3 }}
{{ ' a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ '  a  '.strip() }}|{{ '--a--'.lstrip('-') }}|{{ 'a..'.rstrip('.') }}|
{{ 'Straße É' | upper }} {{ 'ÀB' | lower }} {{ 'hello wORLD-foo (bar' | title }} {{ 'hELLO wORLD' | capitalize }} {{ 'éa'.upper() }}
{{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b c '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split(',') }} {{ ''.split() }}
{{ 'a\nb\r\nc\n'.splitlines() }} {{ 'abcabc'.replace('b', 'X') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'aaa' | replace('a', 'bb') }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ 'äbc'.find('c') }} {{ 'abcb'.rfind('b') }} {{ 'abab'.count('ab') }} {{ 'abc'.find('z') }}
{{ '-'.join(['a', 'b']) }} {{ 'abc'.removeprefix('a').removesuffix('c') }} {{ '12'.isdigit() }} {{ ' \n'.isspace() }} {{ 'aBC'.capitalize() }}
{{ {'b': 1, 'a': 2}.items() | list }} {{ {'b': 1}.keys() | list }} {{ {'b': 1}.values() | list }} {{ {'b': 1}.get('b') }} {{ {'b': 1}.get('c') }} {{ {'b': 1}.get('c', 3) }}
{{ 'äb' | length }} {{ [1, 2] | count }} {{ {'a': 1} | length }} {{ missing | length }}
{{ missing | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ none | d('e', boolean=true) }} {{ missing | d }}|
{{ [1, 2] | first }} {{ 'abc' | last }} {{ [] | first }}| {{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ [1, 2] | sort(reverse=true) }} {{ [1, 2, 3] | reverse | list }} {{ 'abc' | reverse }}
{{ [1, 2] | join }} {{ [1, none, 'a'] | join(', ') }} {{ [{'n': 1}, {'n': 2}] | join('+', attribute='n') }} {{ 'abc' | join('.') }}
{{ [1, 1, 2] | unique | list }} {{ {'b': 1, 'A': 2} | dictsort }} {{ 'abc' | list }} {{ 5 | string + '!' }} {{ '7' | int + 1 }} {{ 'x' | int(9) }} {{ '2.9' | int }} {{ 2.9 | int }} {{ '1.5' | float }} {{ 'a' | float }}
{{ ['a', 'b'] | map('upper') | join }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }} {{ [{}] | map(attribute='z', default=5) | list }}
{{ [1, 'a', none] | select('string') | list }} {{ [0, 1] | select | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ [{'r': 'u'}, {'r': 'a'}] | selectattr('r', '==', 'u') | list }} {{ [{'r': 'u'}, {}] | rejectattr('r', 'defined') | list }} {{ [{'r': 0}, {'r': 1}] | selectattr('r') | list | length }} {{ [1, 5] | select('in', [5]) | list }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(width=3, blank=true) }}|{{ 'a\nb\n' | indent('> ') }}|
{{ {'a': [1, 2.0, 'é"\n', none, true], 'b': {}} | tojson }} {{ 'é<>&\'\x07' | tojson }} {{ {'b': 1, 'a': [ ]} | tojson(indent=2, sort_keys=true) }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }}
{{ 3 is odd }} {{ 4 is even }} {{ 2.0 is even }} {{ 2.5 is odd }} {{ 4.0 is divisibleby 2 }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is number }} {{ true is number }} {{ 1.0 is float }} {{ true is integer }} {{ 'a' is sequence }} {{ {} is mapping }} {{ [] is iterable }} {{ 3 is iterable }} {{ 1 is eq 1 }} {{ 'a' is in 'cat' }} {{ true is true }} {{ 1 is true }} {{ none is not defined }} {{ range is callable }} {{ false is boolean }} {{ 1 is ne 2 }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ dict(a=1, b=2) }} {{ strftime_now('%Y-%m-%d %H:%M') }}
{% set a, b = 1, 2 %}{{ b }}{{ a }}{% set t = 1, %}{{ t }}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }} {{ ns.z is defined }}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{% for c in 'héy' %}{{ c }}.{% endfor %}{% for i in [] %}{% else %}none{% endfor %}
{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('x', 'y') }};{% endfor %}
{% for i in range(9) if i % 2 %}{% if i == 5 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{{ loop.length }}{% endfor %}
{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{% if j == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}{{ loop.index }}{% endfor %}
{% macro m(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2, 3) }}{{ m(c=1, a=2) }}{{ m() | length }}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}
{% set g = 1 %}{% macro h() %}{{ g }}{% set g2 = 5 %}{% endmacro %}{% set g = 2 %}{{ h() }}{{ g2 is defined }}
{% set s | trim | upper %}  a {{ 1 }} b  {% endset %}[{{ s }}]{% set s %}{% endset %}[{{ s }}]
{% if 0 %}a{% elif [] %}b{% elif 'x' %}c{% else %}d{% endif %}{% if missing %}e{% endif %}
a {#- gone -#} b {# kept #} c {%- if 1 %} d {% endif -%} e{{- 1 -}} f {{ 2 -}} g
{{ '}}' }} {{ '{%' }} {{ {'a': {'b': 1}}.a.b }} {{ "%}" }}
{{ 'a' + 'b' * 2 }} {{ [1] + [2] }} {{ [0] * 3 }} {{ 2 * 'x' }} {{ 'x' * -1 }}|{{ (1,) + (2,) }}
{{ missing }}|{{ none }}|{{ true }}|{{ [missing] is sequence }}|{{ 'a'.b is defined }}|{{ none.x is defined }}|{{ (1).x is defined }}
{{ text | trim | length }} {{ text[:3] }} {{ deep.a[0].b }} {{ deep['a'][0]['b'] }} {{ deep.a[-1].b is string }} {{ big }} {{ real }}
""".strip("\n").split("\n")
LINES = ["  {% if 1 %}\n  a\n  {% endif %}\nb\n", "x\n   {%+ if 1 %}\ny\n{%+ endif %}  \n", "{% if 1 +%}\nz{% endif %}\n\n",
         "  {{ 1 }}\n  {{- 2 }}  \n {# c #}\n d {# e #}\n", "\t {%- set a = 1 -%} \n\n {{ a }} {%- if a -%}\n q \n{%- endif %}\n\n\n",
         "a\r\nb\rc{% if 1 %}\r\nd{% endif %}\r\n", "{#\n many\n lines #}\nx", "{{ 'a\nb' }}", "\u00a0{% if 1 %}\u2003x{%- endif %}\n", "",
         "\n", "{", "{ {", "{%set a=1%}{{a}}%}", "{{1}}}", "a{#-#}b", "a {#-x#} b{#+ y -#} c {#- z +#}\nd",
         "   {% if 1 %}{% if 1 %}\n  {% endif %}   {% endif %}\n  x"]
WRONG = ["{{ missing.x }}", "{{ missing['x'] }}", "{{ 1 + 'a' }}", "{{ 'a' + none }}", "{{ [1] + (2,) }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}",
         "{{ 1 < 'a' }}", "{{ none in 'abc' }}", "{{ 1 in none }}", "{% for x in 3 %}{% endfor %}", "{% for x in none %}{% endfor %}",
         "{% for a, b in [[1]] %}{% endfor %}", "{{ missing() }}", "{{ 'a'() }}", "{{ raise_exception('no') }}", "{% set m.x = 1 %}",
         "{% set m = {} %}{% set m.x = 1 %}", "{{ [1, 2].append(3) }}", "{{ missing + 1 }}", "{{ missing | tojson }}", "{{ 'a' | foo }}",
         "{{ 1 is foo }}", "{{ }}", "{{ 1", "{% if 1 %}", "{% endif %}", "{% foo %}", "{% break %}", "{{ 'a }}", "{{ (1 }}", "{{ 1) }}",
         "{{ f(a=1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{{ {[]: 1} }}",
         "{{ ''.__class__.__mro__ }}", "{% set ns = namespace() %}{% set ns._x = 1 %}x{{ ns._x.y }}", "{{ [1, 2, 3][::0] }}", "{{ 'abc'.split('') }}",
         "{{ range(10000000) }}", "{{ 1 | length }}", "{{ none | first }}", "{{ 'a' * 'b' }}", "{{ - 'a' }}", "{# x", "{{ 'x' is divisibleby 2 }}"]


def main():
    cases = []

    def add(name, source, variables):
        text, _ = template_oracle.render(source, variables)
        cases.append({"name": name, "template": source, "variables": variables, "text": text})

    for name, source in CHATS.items():
        for variables in MESSAGES:
            add(name, source, variables)
    some = {"text": "  Über\n", "deep": {"a": [{"b": "c"}]}, "big": 9007199254740993, "real": 0.25}
    for source in PIECES + LINES:
        add("piece", source, some)
    for source in WRONG:
        add("wrong", source, {})
    for source, variables in KINDS:
        add("kind", source, variables)
    bad = [case for case in cases if (case["text"] is None) != (case["name"] == "wrong") and case["name"] not in ("turns", "kind")]
    for case in bad:
        print(case["template"], template_oracle.render(case["template"], case["variables"]))
    assert not bad
    print("[" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "]")


if __name__ == "__main__":
    main()
