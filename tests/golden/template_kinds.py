"""Templates by kind, for make_templates.py: what jinja2 and Python's str do in places where it is easy to do a little less. A row is
a template, or a template and its variables."""

D = {"d": {"b": 2, "A": 3, "c": 1}}
USERS = {"m": [{"role": "user", "n": 2, "content": "Hi", "x": {"y": [5, 6]}}, {"role": "assistant", "n": 1, "content": None, "x": {"y": [4]}},
               {"role": "User", "n": 2, "content": [{"type": "text", "text": "q"}, {"type": "image"}], "x": {"y": []}}]}
BIG = {"t": {"maximum": 18446744073709551615, "minimum": -9223372036854775809, "x": [10 ** 30, 2 ** 63 - 1, -2 ** 63]}}
WIDE = {"s": "aäb€c𝄞dß", "e": "", "lines": "a\r\nb\rc\n\nd\u2028e\u2029f\x85g\x0bh\x0ci\x1cj\x1dk\x1el"}

ARGUMENTS = [
    ("{{ d|dictsort(true) }}", D), ("{{ d|dictsort(case_sensitive=true) }}", D), ("{{ d|dictsort(false, 'value') }}", D),
    ("{{ d|dictsort(by='value', reverse=true) }}", D), ("{{ d|dictsort(by='both') }}", D), ("{{ d|dictsort(revers=true) }}", D),
    ("{{ d|dictsort(false, 'key', true, 1) }}", D), ("{{ d|dictsort(false, case_sensitive=true) }}", D), ("{{ 5|dictsort }}", {}),
    ("{{ m|sort(attribute='n')|map(attribute='role')|join }}", USERS), ("{{ m|sort(true, attribute='n')|map(attribute='role')|join }}", USERS),
    ("{{ m|sort(attribute='role', case_sensitive=true)|map(attribute='role')|join(' ') }}", USERS),
    ("{{ m[:1]|sort(attribute='x.y.0')|length }}", USERS), ("{{ [[2, 'a'], [1, 'b']]|sort(attribute=0) }}", {}),
    ("{{ [[2, 'a'], [1, 'b']]|sort(attribute='1') }}", {}), ("{{ [3, 1, 2]|sort(reverse=true) }}", {}), ("{{ ['b', 'A', 'a', 'B']|sort }}", {}),
    ("{{ ['b', 'A', 'a', 'B']|sort(reverse=true) }}", {}), ("{{ [1, 'a']|sort }}", {}), ("{{ [3]|sort(key=1) }}", {}),
    ("{{ ['a', 'A', 'b', 'B', 'a']|unique|list }}", {}), ("{{ ['a', 'A']|unique(true)|list }}", {}),
    ("{{ m|unique(attribute='n')|map(attribute='role')|list }}", USERS), ("{{ m|unique(attribute='role')|list|length }}", USERS),
    ("{{ [1, true, 1.0, '1']|unique|list }}", {}), ("{{ x|default('a', true) }}{{ ''|default('b', boolean=true) }}{{ ''|d('c') }}", {}),
    ("{{ x|default(default_value='a') }}", {}), ("{{ x|default(value='a') }}", {}), ("{{ x|default('a', true, 1) }}", {}),
    ("{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent(first=true) }}|{{ 'a\n\nb'|indent(width='> ', blank=true) }}", {}),
    ("{{ s|indent|tojson }}|{{ s|indent(1, true)|tojson }}|{{ s|indent('> ', blank=true)|tojson }}", {"s": "a\r\nb\x0bc\u2028\n\nd\r"}),
    ("{{ 'a'|indent(2, indentfirst=true) }}", {}), ("{{ 'a-b-c'|replace('-', '+', 1) }}{{ 'a-b'|replace(old='-', new='+') }}", {}),
    ("{{ 'a'|replace('b') }}", {}), ("{{ 'a'|replace(was='b', new='c') }}", {}), ("{{ ' xax '|trim }}|{{ 'xax'|trim('x') }}|{{ 'xax'|trim(chars='x') }}", {}),
    ("{{ 'a'|trim(characters='x') }}", {}), ("{{ 'a'|upper(1) }}", {}), ("{{ [1]|length(2) }}", {}), ("{{ m|map('upper', 1)|list }}", USERS),
    ("{{ m|map(attribute='role', default='?')|list }}{{ m|map(attribute='no', default='?')|list }}", USERS), ("{{ m|map(attribut='role')|list }}", USERS),
    ("{{ ['a']|map('replace', 'a', 'b')|list }}{{ [1]|map('default', 2)|list }}{{ [['a', 'b']]|map('join', '-')|list }}", {}),
    ("{{ [['b', 'a']]|map('sort', reverse=true)|list }}", {}), ("{{ ['1']|map('int', foo=1)|list }}", {}),
    ("{{ m|selectattr('n', 'gt', 1)|list|length }}{{ m|rejectattr('n', 'eq', 2)|list|length }}{{ m|selectattr('content')|list|length }}", USERS),
    ("{{ m|selectattr('n', 'gt')|list }}", USERS), ("{{ m|selectattr('n', 'eq', other=1)|list }}", USERS), ("{{ m|selectattr('n', 'nope')|list }}", USERS),
    ("{{ m|selectattr()|list }}", USERS), ("{{ [1, 2, 3]|select('odd')|list }}{{ [1, 2, 3]|reject('divisibleby', 3)|list }}", {}),
    ("{{ [1, 2, 3]|select('divisibleby', num=3)|list }}{{ [0, 1]|select|list }}", {}), ("{{ [1]|select('in', [1, 2])|list }}{{ [1]|select('in', seq=[2])|list }}", {}),
    ("{{ 4 is divisibleby(num=2) }}{{ 4 is divisibleby 3 }}", {}), ("{{ 4 is divisibleby }}", {}), ("{{ 4 is defined(1) }}", {}),
    ("{{ [1, [2]]|tojson(indent=2) }}{{ 'é'|tojson(true) }}{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", {}),
    ("{{ 1|tojson(foo=1) }}", {}), ("{{ 1|tojson(false, none, none, false, 1) }}", {}), ("{{ [1]|tojson(indent='--') }}", {}),
    ("{{ 'a b'.split(sep=' ') }}{{ 'a b c'.split(maxsplit=1) }}{{ 'a\nb'.splitlines(keepends=true) }}", {}), ("{{ 'a'.strip(chars='a') }}", {}),
    ("{{ 'a'.split('b', 1, 2) }}", {}), ("{{ 'a'.split(separator='b') }}", {}), ("{{ 'a'.upper(1) }}", {}), ("{{ d.get('b', default=1) }}", D),
    ("{{ d.get('no', 7) }}{{ d.get('b') }}{{ d.get('no') }}", D), ("{{ d.get() }}", D), ("{{ 'a'.startswith(prefix='a') }}", {}), ("{{ 'a'.startswith() }}", {}),
    ("{{ range(1, 7, 2)|list }}{{ range(2)|list }}{{ range(3, 0, -1)|list }}", {}), ("{{ range(stop=2)|list }}", {}), ("{{ range() }}", {}),
    ("{{ namespace(a=1).a }}{{ dict(a=1, b=2) }}{{ dict({'x': 1}, y=2) }}{{ dict([('k', 1)]) }}", {}), ("{{ strftime_now('%Y') }}{{ strftime_now(format='%d') }}", {}),
    ("{{ strftime_now(fmt='%d') }}", {}), ("{{ raise_exception(message='no') }}", {}), ("{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=1) }}", {}),
    ("{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=4, a=5) }}{{ f(1, a=2) }}", {}),
    ("{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f() }}", {}), ("{{ 'x'|int('n') }}{{ 'x'|int(default=none) }}{{ 'x'|float(1) }}", {}),
    ("{{ [1, 2]|join(',', 'a') }}", {}), ("{{ m|join('-', attribute='role') }}{{ m|join(d='+', attribute='n') }}{{ [1, 2]|join(3) }}", USERS),
]

ITERATORS = [
    ("{% if m|selectattr('role', 'equalto', 'none') %}S{% else %}-{% endif %}", USERS), ("{% set u = m|map(attribute='n') %}{{ u|list }}{{ u|list }}", USERS),
    ("{{ m|map(attribute='n')|length }}", USERS), ("{{ (m|map(attribute='n'))[0] }}", USERS), ("{{ (m|map(attribute='n'))[:1] }}", USERS),
    ("{{ m|map(attribute='n')|first }}{{ m|selectattr('no')|first }}", USERS), ("{{ m|map(attribute='n')|last }}", USERS),
    ("{% set u = m|map(attribute='n') %}{{ u|first }}{{ u|list }}", USERS), ("{% set u = [1, 2, 3]|select %}{{ 2 in u }}{{ u|list }}", {}),
    ("{{ [1, 2]|reverse|list }}{{ 'abc'|reverse }}{{ [1, 2]|select|reverse }}", {}), ("{{ [1, 2]|reverse|length }}", {}), ("{{ ([1, 2]|reverse)[0] }}", {}),
    ("{% for x in [1, 2]|reverse %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}", {}), ("{{ [1, 2]|map('string')|tojson }}", {}),
    ("{{ ([1]|map('string')) + ['a'] }}", {}), ("{{ [1]|select == [1]|select }}{{ [1]|select is iterable }}{{ [1]|select is sequence }}{{ [1]|select is mapping }}", {}),
    ("{% set a, b = [1, 2]|select %}{{ a }}{{ b }}", {}), ("{{ d|items|list }}{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}", D), ("{{ d|items|length }}", D),
    ("{{ no|items|list }}{{ no|map('upper')|list }}{{ no|list }}{{ no|reverse|list }}{{ no|sort }}", {}), ("{{ 5|items|list }}", {}),
    ("{{ d.keys() }}{{ d.values() }}{{ d.items() }}", D), ("{{ d.keys()|length }}{{ d.items()|length }}{{ 'b' in d.keys() }}{{ 3 in d.values() }}", D),
    ("{{ d.keys()[0] }}|{{ d.items()[0] }}", D), ("{{ d.keys()[:1] }}", D), ("{{ d.keys()|first }}{{ d.keys()|last }}{{ d.values()|reverse|list }}{{ d|reverse|list }}", D),
    ("{% if {}.items() %}1{% endif %}{% if d.items() %}2{% endif %}", D), ("{{ d.keys()|list + ['z'] }}", D), ("{{ d.keys() + ['z'] }}", D), ("{{ d.items()|tojson }}", D),
    ("{% set k = d.keys() %}{{ k|list }}{{ k|list }}", D), ("{{ d.items() is sequence }}{{ d.items() is iterable }}{{ d.items() is mapping }}", D),
    ("{% for k, v in d.items() if v > 1 %}{{ k }}{{ loop.index }}{{ loop.length }}{% endfor %}", D), ("{{ d.items()|sort }}{{ d.values()|sum }}{{ d.keys()|join }}", D),
]

TEXT = [
    ("{{ lines.splitlines() }}{{ lines.splitlines(true) }}{{ lines.splitlines()|length }}{{ e.splitlines() }}", WIDE),
    ("{{ w|capitalize }}{{ w.capitalize() }}{{ w|title }}{{ w.title() }}{{ w.upper() }}{{ w.lower() }}", {"w": "ßtraße ǆ ŉ ΑΣ ΟΔΟΣ they're ﬁn İi"}),
    ("{{ 'hello wORLD'|capitalize }}{{ \"it's a (b)-c [d] <e> 1st\"|title }}{{ \"it's a (b)-c [d] <e> 1st o'neill\".title() }}", {}), ("{{ 'user'.title() }}{{ ''.title() }}{{ ''|capitalize }}", {}),
    ("{{ l }}", {"l": ["a\u200bb\u2028\ufeff", "\x00\x1f\x7f\x85\xa0\xad", "é€𝄞\U0001f600\U000e0001\ue000\U0010ffff", "'", '"', "'\"", "\\\n\r\t"]}),
    ("{% for x in l %}{{ x.isdigit() }}{{ x.isalpha() }}{{ x.isalnum() }}{{ x.isspace() }}"
     ";{% endfor %}",
     {"l": ["12", "²", "½", "٣", "Ⅷ", "ab", "aB1", "", " \u3000", "é_", "ǅ", "ªº", "漢", "-1", "\u200b"]}),
    ("{{ x|int }}{{ '٣٤'|int }}{{ ' 1_000 '|int }}{{ '1__0'|int }}{{ '_1'|int }}{{ '+5'|int }}{{ '1.9'|int }}{{ '1e3'|int }}", {"x": "-007"}),
    ("{{ 3.99|int }}{{ -3.99|int }}{{ true|int }}{{ none|int }}{{ '99999999999999999999'|int }}{{ '1e30'|int }}{{ 1e25|int }}", {}),
    ("{{ ' 1_0.5 '|float }}{{ 'inf'|float }}{{ 'x'|float }}{{ '5'|float }}{{ none|float(2.5) }}{{ '0x1p3'|float }}", {}),
    ("{{ t|tojson }}{{ t }}{{ t.maximum }}{{ t.maximum == t.maximum }}{{ t.maximum > 5 }}{{ t.minimum < t.x[2] }}{{ t.maximum is integer }}{{ t.maximum is number }}", BIG),
    ("{{ t.x[1] < t.maximum }}{{ t.x[1] < 9223372036854775808 }}{{ 9223372036854775808 > t.x[1] }}{{ t.minimum < t.x[2] }}{{ [t.minimum, t.x[2]]|max }}"
     "{{ [18446744073709551616, 18446744073709551615, 9223372036854775808]|sort }}{{ 100000000000000000000 > 99999999999999999999 }}", BIG),
    ("{{ ('1' * 5000)|int }}{{ ('é' * 9)|float }}{{ ('é' * 9)|int }}{{ ('1.' * 5000)|int(7) }}", {}),
    ("{% macro f() %}{{ kwargs }}{% endmacro %}{% macro g(kwargs) %}{{ kwargs }}{% set varargs = 2 %}{{ varargs }}{% endmacro %}{{ g(1) }}{{ kwargs }}", {}),
    ("{{ 18446744073709551616 }}{{ [18446744073709551616, 3]|sort }}{{ [18446744073709551616, 3]|max }}{{ 18446744073709551616|string|length }}", {}),
    ("{{ t.x[0]|float }}{{ t.x[0]|int }}{{ '%s'|format(t.maximum) }}{{ t.x|join(',') }}{{ t.maximum ~ '' }}", BIG),
    ("{{ n|tojson }}{{ n }}", {"n": [float("inf"), float("-inf")]}), ("{{ s[0] }}{{ s[1] }}{{ s[-1] }}{{ s[3] }}{{ s[5] }}{{ s[8] }}|{{ s[-9] }}|{{ s|length }}", WIDE),
    ("{{ s[1:] }}|{{ s[:3] }}|{{ s[2:6] }}|{{ s[-2:] }}|{{ s[:-2] }}|{{ s[::2] }}|{{ s[::-1] }}|{{ s[5:2] }}|{{ s[4:4] }}|{{ s[true:] }}|{{ s[:99] }}", WIDE),
    ("{% for i in range(s|length) %}{{ s[i] }}{{ s[-i - 1] }}{% endfor %}", WIDE), ("{% for i in [7, 0, 3, 6, 1, 5] %}{{ s[i] }}{{ s[i:i + 2] }}{{ e[i] }}{% endfor %}", WIDE),
    ("{{ 'abc'.replace('', '-') }}{{ ''.replace('', '-') }}{{ 'abc'.replace('', '-', 2) }}{{ 'aaa'.replace('a', 'b', 0) }}{{ 'é'.replace('', '.') }}", {}),
    ("{{ 'abcabc'.find('c') }}{{ s.find('c') }}{{ s.rfind('d') }}{{ 'abcabc'.find('c', 3) }}{{ 'abcabc'.rfind('c', 0, 3) }}{{ 'a'.find('a', 5) }}{{ 'abc'.find('') }}{{ s.index('ß') }}", WIDE),
    ("{{ 'abc'.index('z') }}", {}), ("{{ 'abca'.rindex('a') }}{{ 'abab'.count('ab') }}{{ 'aaa'.count('aa') }}{{ 'abc'.count('') }}{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}", {}),
    ("{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('=') }}{{ 'abc'.rpartition('=') }}", {}),
    ("{{ ' a  b c '.rsplit() }}{{ 'a-b-c'.rsplit('-', 1) }}{{ 'a b c'.split(none, 1) }}{{ ''.split() }}{{ ''.split(',') }}", {}),
    ("{{ {'a': none, 'b': true, 1: 2.0, 'c': (1,), 'd': {}} }}", {}), ("{{ 1e16 }}{{ 1e15 }}{{ 1e-5 }}{{ 0.0001 }}{{ 100.0 }}{{ 1.5e300 }}{{ 2 ** 0.5 }}{{ -0.0 }}", {}),
    ("{{ '\\101\\60\\x41\\u00e9\\0' }}", {}), ("{{ 'a' 'b' \"c\" }}", {}),
]

CONSTRUCTS = [
    ("{% raw %}{{ x }}{% if %}{# y #}{% endraw %}|", {}), ("a {%- raw -%} {{ x }} {%- endraw -%} b", {}), ("a\n  {% raw %}\n {{ x }}\n  {% endraw %}\nb", {}), ("{% raw %}{{ x }}", {}),
    ("{%+ raw +%}a{%+ endraw +%}\nb", {}), ("{% filter upper %}te{{ x }}xt{% endfilter %}", {"x": "é"}), ("{% filter replace('a', 'b')|upper %}aba{% endfilter %}", {}), ("{% filter nope %}{% endfilter %}", {}),
    ("{% filter trim %}\n a \n{% endfilter %}|{% set x|upper|trim %} a {% endset %}{{ x }}", {}), ("{% for i in [1, 2] %}{% filter upper %}a{{ i }}{% endfilter %}{% endfor %}", {}),
    ("{% macro w(t) %}<{{ t }}>{{ caller() }}{% endmacro %}{% call w('b') %}x{{ 1 + 1 }}{% endcall %}", {}), ("{% macro w() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b=3, c=4) w() %}{{ a }}{{ b }}{{ c }}{% endcall %}", {}),
    ("{% macro w() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ w() }}{% call w() %}y{% endcall %}", {}), ("{% macro w() %}no{% endmacro %}{% call w() %}y{% endcall %}", {}),
    ("{% macro a() %}[{{ caller() }}]{% endmacro %}{% call a() %}{% call a() %}x{% endcall %}{% endcall %}", {}), ("{% set v = 5 %}{% macro a() %}{% set v = 6 %}{{ caller() }}{% endmacro %}{% call a() %}{{ v }}{% endcall %}", {}),
    ("{% call 'a' %}{% endcall %}", {}), ("{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", {}), ("{% set a = 5 %}{% with a = a + 1, b = a %}{{ a }}{{ b }}{% set a = 9 %}{% endwith %}{{ a }}", {}),
    ("{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", {}), ("{% with a = 1 b = 2 %}{% endwith %}", {}), ("{% for x in [1, 2] %}{% with y = x %}{% if y == 2 %}{% break %}{% endif %}{{ y }}{% endwith %}{% endfor %}", {}),
    ("{% macro f(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(1, *[2]) }}{{ f(**{'b': 1, 'a': 2}) }}{{ f(1, **{'b': 3}) }}{{ f(*[1], **{'b': 2}) }}", {}),
    ("{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1, 2]) }}", {}), ("{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, **{'a': 2}) }}", {}), ("{% macro f(a) %}{{ a }}{% endmacro %}{{ f(**[1]) }}", {}),
    ("{{ 'a-b'|replace(*['-', '+']) }}{{ [2, 1]|sort(**{'reverse': true}) }}{{ 'a b'.split(*[' ']) }}{{ dict(**{'k': 1}) }}{{ 4 is divisibleby(*[2]) }}", {}),
    ("{% set (a, b) = [1, 2] %}{{ a }}{{ b }}", {}), ("{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}", {}), ("{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", {}),
    ("{% for k, (a, b) in {'x': [1, 2]}.items() %}{{ k }}{{ a }}{{ b }}{% endfor %}", {}), ("{% for (k, v) in d.items() %}{{ k }}{{ v }}{% endfor %}", D), ("{% for a, in [[1]] %}{{ a }}{% endfor %}", {}), ("{% set a, b = [1] %}", {}),
    ("{% set a, b = 'xy' %}{{ a }}{{ b }}", {}), ("{{ 3 is gt 2 }}{{ 3 is ge 3 }}{{ 3 is lt(2) }}{{ 3 is le 2 }}{{ 3 is greaterthan 2 }}{{ 3 is lessthan 2 }}{{ 'a' is lt 'b' }}{{ 3 is not gt 2 }}", {}),
    ("{{ 1 is gt 'a' }}", {}), ("{{ false is sameas false }}{{ none is sameas none }}{{ d is sameas d }}{{ d.b is sameas 2 }}{{ true is sameas 1 }}{{ 'a' is sameas 'a' }}{{ {} is sameas {} }}", D),
    ("{{ 5 is eq 5 }}{{ 5 is == 5 }}", {}), ("{{ [1, 2]|select('>', 1)|list }}{{ [1, 2]|select('<=', 1)|list }}{{ [1, 2]|select('!=', 1)|list }}", {}),
    ("{{ [2, 1]|min }}{{ [2, 1]|max }}{{ ['b', 'A']|min }}{{ ['b', 'A']|max }}{{ ['b', 'A', 'a']|min(true) }}{{ []|min }}{{ m|max(attribute='n')|attr('role') }}{{ (m|min(attribute='n')).role }}", USERS),
    ("{{ [2, 1]|sum }}{{ [2, 1.5]|sum }}{{ [2, 1]|sum(start=5) }}{{ m|sum(attribute='n') }}{{ m|sum('n', 10) }}{{ []|sum }}{{ [[1], [2]]|sum(start=[]) }}", USERS), ("{{ ['a']|sum }}", {}),
    ("{{ 2.345|round(2) }}|{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.5|round|int }}|{{ 2.1|round(method='ceil') }}|{{ 2.19|round(1, 'floor') }}|{{ 5|round }}|{{ 5|round(2) }}|{{ 1234.5|round(-2) }}|{{ -2.5|round }}", {}),
    ("{{ 2|round(method='up') }}", {}), ("{{ 42.55|round(1) }}|{{ 0.5|round }}|{{ 1e20|round }}|{{ 7|round(1, 'ceil') }}|{{ -2.1|round(0, 'floor') }}|{{ 1e-7|round(3) }}", {}), ("{{ 'a'|round }}", {}),
    ("{{ '%02d' % 5 }}|{{ '%s and %r' % ('a', 'b') }}|{{ '%5.2f' % 3.14159 }}|{{ '%-5s|' % 'a' }}|{{ '%+d' % 3 }}|{{ '%x %X %o' % (255, 255, 8) }}|{{ '%%' % () }}|{{ '%(a)s' % {'a': 1} }}", {}),
    ("{{ '%e' % 12345.678 }}|{{ '%g' % 0.0001 }}|{{ '%.3s' % 'abcdef' }}|{{ '%d' % 3.7 }}|{{ '%s' % none }}|{{ '%s' % [1, 2] }}|{{ '%05d' % -3 }}|{{ '%i' % true }}|{{ '%#x' % 255 }}|{{ '% d' % 5 }}", {}),
    ("{{ '%s %s' % 'a' }}", {}), ("{{ '%s' % ('a', 'b') }}", {}), ("{{ '%d' % 'a' }}", {}), ("{{ 'a' % 1 }}", {}), ("{{ '%y' % 1 }}", {}), ("{{ '%(a)s' % {'b': 1} }}", {}), ("{{ '%' % 1 }}", {}),
    ("{{ '%s-%s'|format('a', 1) }}{{ '%(x)s'|format(x=2) }}{{ 'a'|format }}", {}), ("{{ '%s'|format }}", {}), ("{{ '%s'|format(1, x=2) }}", {}),
    ("{{ 'a{}'.format(1) }}|{{ '{} {}'.format('a', 'b') }}|{{ '{1}{0}'.format('a', 'b') }}|{{ '{x}'.format(x=1) }}|{{ '{{}}'.format() }}|{{ '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') }}", {}),
    ("{{ '{:05.1f}'.format(3.14159) }}|{{ '{:,}'.format(1234567) }}|{{ '{:*^9}'.format('é') }}|{{ '{:+d}'.format(5) }}|{{ '{:x}'.format(255) }}|{{ '{:#x}'.format(5) }}|{{ '{:.2%}'.format(0.256) }}|{{ '{:.3}'.format('abcdef') }}", {}),
    ("{{ '{0:>4}'.format('a') }}|{{ '{:e}'.format(1234.5) }}|{{ '{:g}'.format(0.5) }}|{{ '{}'.format(1.0) }}|{{ '{}'.format(none) }}|{{ '{:5}|'.format(3) }}", D),
    ("{{ '{'.format(1) }}", {}), ("{{ '}'.format(1) }}", {}), ("{{ '{}'.format() }}", {}), ("{{ '{x}'.format(1) }}", {}), ("{{ '{0}{}'.format(1, 2) }}", {}), ("{{ '{:d}'.format('a') }}", {}), ("{{ '{:d}'.format(1.5) }}", {}), ("{{ '{:q}'.format(1) }}", {}),
    ("{{ '<a href=\"x\">&\\''|e }}{{ 5|escape }}", {}),
    ("{{ d|attr('b') }}|{{ 'abc'|attr('upper') is callable }}", D), ("{{ [1, 2] < [1, 3] }}{{ (1,) < (1, 0) }}{{ [2] > [1, 5] }}{{ [1] < (2,) }}", {}),
    ("{{ (1, 2).count(1) }}{{ 'x' in ('x', 'y') }}{{ [1, 2] * 2 }}{{ 'ab' * 0 }}{{ 7 // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7.5 % 2 }}{{ 2 ** 10 }}{{ 2 ** -1 }}", {}),
]

SLICES = [(f"{{{{ x[{bounds}] }}}}", {"x": x}) for x in (None, 5, 1.5, True, {"a": 1}) for bounds in (":1", "1:", "::2", ":")] + [
    ("{{ no[:1] }}", {}), ("{{ [1, 2, 3][-2:] }}{{ (1, 2, 3)[::-1] }}{{ [1, 2, 3][5:] }}{{ [1][:none] }}", {}), ("{{ [1, 2][::0] }}", {}), ("{{ s['a':] }}", WIDE),
    ("{% for m in m %}{{ m.content[:3] }}{% endfor %}", USERS), ("{{ none[0] }}|{{ 5['a'] }}|{{ true.x }}", {}), ("{{ [1, 2, 3][1:][0] }}{{ 'abc'[1:][1:] }}", {}),
]

CONSTRUCTS += [("{% if 0 %}{{ m.append(1) }}{{ x.nope() }}{% endif %}{{ m|length }}", USERS), ("{{ m.append(1) }}", USERS), ("{{ 'a'.nope() }}", {}),
               ("{{ d.update(a=1) }}", D), ("{{ d.nope }}|{{ 'a'.nope }}", D)]

CONSTRUCTS += [("{% if x %}{{ x|from_json }}{% elif x is prime %}{% endif %}y", {"x": 0}), ("{% if x %}{{ x|from_json }}{% endif %}y", {"x": 1})]
ITERATORS += [("{{ none|selectattr('a', 'eq', 1)|list }}{{ none|map('upper')|list }}{{ ''|select|list }}{{ 0|reject('no')|list }}{{ no|map(foo=1)|list }}", {}),
              ("{{ 5|select|list }}", {}), ("{{ none|list }}", {}), ("{{ none|join }}", {}), ("{{ none|sort }}", {})]

CONSTRUCTS += [("{{ '<a>'|safe + '<b>' + x }}|{{ x + '<'|safe }}|{{ '<a>'|e + '<b>' }}|{{ '<a>'|e|e }}|{{ '<'|safe ~ '<' }}", {"x": "&'"}),
               ("{{ '<'|safe|trim + '<' }}|{{ '<'|safe|string + '<' }}|{{ ['<'|safe, '<']|join }}|{{ {'a': '<'|safe}|tojson }}|{{ '<'|safe == '<' }}", {}),
               ("{% set a = '<'|safe %}{{ a + '>' }}{% macro f() %}<{{ a }}{% endmacro %}{{ f() + '<' }}", {})]

TREE = {"t": [{"n": "a", "c": [{"n": "b", "c": [{"n": "c", "c": []}]}, {"n": "d"}]}, {"n": "e", "c": []}]}
CONSTRUCTS += [
    ("{% for x in t recursive %}<{{ x.n }}{{ loop.depth }}{{ loop.index }}{% if x.c %}{{ loop(x.c) }}{% endif %}>{% endfor %}", TREE),
    ("{% for x in t if x.n != 'd' recursive %}{{ x.n }}{{ loop.length }}({{ loop(x.c|default([])) }}){% else %}-{% endfor %}", TREE),
    ("{% set o = 5 %}{% for x in t recursive %}{% set y = x.n %}{{ o }}{{ y }}{{ loop(x.c or []) }}{{ y }}{% for q in [1, 2] %}{{ loop.depth }}{% endfor %}{% endfor %}", TREE),
    ("{% for x in t recursive %}{% if x.n == 'b' %}{% break %}{% endif %}{{ x.n }}{{ loop(x.c or []) }}{% endfor %}", TREE),
    ("{% for x in t %}{{ loop(x.c) }}{% endfor %}", TREE), ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", {}),
]

LETTERS = {"t": "abcde", "n": ["x", "y", "z"]}
CONSTRUCTS += [
    ("{% set j = joiner() %}{% for x in n %}{{ j() }}{{ x }}{% endfor %}{{ j is callable }}", LETTERS),
    ("{% set j = joiner('; ') %}{% set k = joiner(sep=7) %}{% for x in n %}{{ j() }}{{ k() }}{{ x }}{% endfor %}", LETTERS),
    ("{{ joiner(1, 2) }}", {}), ("{{ joiner().next() }}", {}),
    ("{% macro m(x) %}{{ x }}{% endmacro %}{% for x in n %}{% macro f() %}[{{ x }}]{% endmacro %}{{ f() }}{{ m(x) }}{% endfor %}", LETTERS),
    ("{% for x in n %}{% if loop.first %}{% set y = x %}{% endif %}{{ y }}{% for z in t if z > 'b' %}{{ z }}{{ y }}{% endfor %};{% endfor %}", LETTERS),
    ("{{ strftime_now('%d%Z|%z|%Y') }}{{ strftime_now('%%Z %%%Z%f %H') }}{{ strftime_now('%Z') }}{{ strftime_now('') }}", {}),
]

KINDS = ARGUMENTS + ITERATORS + TEXT + CONSTRUCTS + SLICES
