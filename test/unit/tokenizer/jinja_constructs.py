"""Writes jinja_constructs.json: what Jinja prints for small templates, as transformers configures it.

    python3 test/unit/tokenizer/jinja_constructs.py

Each entry is a template and its text, or null if Jinja raises an error. The test reads the JSON, so
that it needs no Python. Made by jinja2 3.1.6 and transformers 5.18 under Python 3.11.
"""

import hashlib
import itertools
import json
import os
import re
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {
    "n": 3,
    "z": 0,
    "f": 2.5,
    "s": "Hello World",
    "e": "",
    "huge": "inf",
    "u": "😀é日x",
    "html": "<b class='x'>\"a\" & b</b>",
    "lines": "one\ntwo\n\nthree",
    "l": [3, 1, 2],
    "words": ["b", "A", "c"],
    "mixed": [1, "a", None, True, 2.5, [1], {"k": 1}],
    "d": {"b": 1, "a": [1, 2], "c": None},
    "users": [
        {"name": "bob", "age": 3, "tags": ["x"]},
        {"name": "Al", "age": 1, "tags": []},
        {"name": "cy", "age": 3, "tags": ["y", "x"], "extra": {"k": "v"}},
    ],
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": []}]}, {"v": 4, "c": []}]}],
    "nothing": None,
    "yes": True,
    "no": False,
    "messages": [{"role": "user", "content": "hi"}],
}

CONSTRUCTS = r"""
{{ 1 }}{{ 1.0 }}{{ 1e3 }}{{ 1E-7 }}{{ 0x1F }}{{ 0b101 }}{{ 0o17 }}{{ 1_000 }}{{ 1_0.5_0 }}{{ 00 }}
{{ 007 }}
{{ 1. }}
{{ .5 }}
{{ 1e400 }}
{{ 123456789012345678901234567890 }}
{{ 2**100 }}|{{ 2**-1 }}|{{ -2**2 }}|{{ 2**3**2 }}|{{ (-8)**2 }}
{{ 1e16 }}|{{ 1e15 }}|{{ 123456789.125 }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ 1e22 }}|{{ -0.0 }}|{{ 1.5e300 * 1e10 }}
{{ 0.1 + 0.2 }}|{{ 1/3 }}|{{ 2/1 }}|{{ 7//2 }}|{{ -7//2 }}|{{ 7//-2 }}|{{ 7.5//2 }}|{{ -7.5//2 }}
{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ -7 % -3 }}|{{ 7.5 % 2 }}|{{ -7.5 % 2 }}|{{ 7.5 % -2 }}
{{ 1 // 0 }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1.0 % 0 }}
{{ 0 ** -1 }}
{{ true + true }}|{{ true * 3 }}|{{ true / 2 }}|{{ -true }}|{{ +true }}|{{ not 1 }}|{{ true ** 2 }}
{{ 1 + 1.0 }}|{{ 3 - 1.5 }}|{{ 2 * 1.5 }}|{{ 2.0 ** 3 }}|{{ 10 ** 20 }}|{{ 9007199254740993 + 0 }}
{{ 'a' + 'b' }}|{{ 'a' * 3 }}|{{ 3 * 'ab' }}|{{ 'a' * -1 }}|{{ 'a' * true }}|{{ [1] * 2 }}|{{ 2 * (1, 2) }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 'a' * 'b' }}
{{ 'a' * 1.5 }}
{{ 'a' - 'b' }}
{{ none + 1 }}
{{ [1] + (2,) }}
{{ [1] + [2] }}|{{ (1,) + (2,) }}|{{ [] + [] }}
{{ [1] - [1] }}
{{ {} + {} }}
{{ -'a' }}
{{ -none }}
{{ missing + 1 }}
{{ 1 + missing }}
{{ -missing }}
{{ 'a' ~ missing ~ 'b' }}
{{ 1 ~ 2 }}|{{ 1 ~ 'a' ~ 2.0 ~ none ~ true ~ [1] ~ {'a': 1} }}|{{ 1 + 2 ~ 3 + 4 }}
{{ 1 ~ 2 * 3 }}|{{ 2 * 3 ~ 1 }}|{{ '1' ~ 2 == '12' }}
{{ 1 < 2 }}|{{ 1 < 2 < 3 }}|{{ 3 > 2 > 2 }}|{{ 1 < 3 > 2 }}|{{ 1 == 1.0 == true }}|{{ 1 != 2 != 1 }}
{{ 'a' < 'b' }}|{{ 'a' < 'B' }}|{{ 'ab' < 'abc' }}|{{ '' < 'a' }}|{{ '😀' < '\uffee' }}|{{ 'é' > 'z' }}
{{ [1, 2] < [1, 3] }}|{{ [1] < [1, 0] }}|{{ (1, 'a') < (1, 'b') }}|{{ [2] > [1, 9] }}|{{ [] < [0] }}
{{ 1 < 'a' }}
{{ none < none }}
{{ [1] < ['a'] }}
{{ [1] < (1,) }}
{{ {} < {} }}
{{ missing < 1 }}
{{ none == none }}|{{ none == 0 }}|{{ none == false }}|{{ '' == none }}|{{ missing == missing }}|{{ missing == none }}|{{ missing == '' }}
{{ 1 == '1' }}|{{ 1 == 1.0 }}|{{ 1 == true }}|{{ 0 == false }}|{{ '' == false }}|{{ [] == () }}|{{ [1] == [1.0] }}
{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}|{{ {'a': 1} == {'a': 1.0} }}|{{ {} == [] }}
{{ range(3) == range(3) }}|{{ range(0) == range(2, 2) }}|{{ range(3) == [0, 1, 2] }}
{{ 1 in [1, 2] }}|{{ 1.0 in [1] }}|{{ true in [1] }}|{{ '1' in [1] }}|{{ none in [none] }}|{{ missing in [missing] }}
{{ 'a' in 'abc' }}|{{ '' in '' }}|{{ 'ac' in 'abc' }}|{{ 'b' not in 'abc' }}|{{ not 'b' in 'abc' }}
{{ 'a' in {'a': 1} }}|{{ 1 in {1: 2} }}|{{ 1 in {true: 2} }}|{{ 'b' in d.keys() }}|{{ 1 in d.values() }}|{{ ('b', 1) in d.items() }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ 'a' in none }}
{{ 'a' in missing }}
{{ [] in {} }}
{{ 2 in range(5) }}|{{ 5 in range(5) }}|{{ 2.0 in range(5) }}|{{ 'a' in ('a', 'b') }}|{{ [1] in [[1]] }}
{{ 1 in (x for x in y) }}
{{ true and false }}|{{ 1 and 2 }}|{{ 0 and 2 }}|{{ '' or 'x' }}|{{ none or [] or 'z' }}|{{ not none }}|{{ not missing }}
{{ not not 1 }}|{{ not 1 == 2 }}|{{ true or raise_exception('no') }}|{{ 1 or 2 and 3 }}|{{ (1 or 2) and 3 }}
{{ 'y' if true else 'n' }}|{{ 'y' if 0 else 'n' }}|{{ 'y' if false }}|{{ ('y' if false) is defined }}|{{ 1 if 0 else 2 if 0 else 3 }}
{{ ('y' if false) + 'a' }}
{{ 'a' if x is defined else 'b' | upper }}|{{ ('a' if x is defined else 'b') | upper }}
{{ 'a' 'b' "c" }}|{{ 'it''s' }}|{{ "a'b" }}|{{ 'a"b' }}
{{ 'a\nb' }}|{{ 'a\tb' }}|{{ '\\' }}|{{ '\'' }}|{{ "\"" }}|{{ '\x41\u00e9\U0001F600' }}|{{ '\101\0'|length }}|{{ '\q' }}
{{ '\a\b\f\v\r'|length }}|{{ '\xe9' }}|{{ '\u65e5' }}|{{ 'é\u00e9' }}|{{ '\X41' }}
{{ '\x4' }}
{{ '\u12' }}
{{ '\U00110000' }}
{{ 'a }}
{{ "a\" }}
{{ {} }}|{{ [] }}|{{ () }}|{{ (1,) }}|{{ (1, 2) }}|{{ 1, 2 }}|{{ 1, }}|{{ [1, 2,] }}|{{ {'a': 1,} }}|{{ (1) }}
{{ {'a': 1, 'b': [2], 'c': {'d': (3,)}} }}|{{ {1: 'a', 2.5: 'b', none: 'c', true: 'd', (1, 2): 'e'} }}
{{ {0: 'a'}[0] }}|{{ {0: 'a'}[false] }}|{{ {0: 'a'}[0.0] }}|{{ {'1': 'x'}[1] }}|{{ {1: 'a', true: 'b', 1.0: 'c'} }}
{{ {(1, 'a'): 2}[(1, 'a')] }}|{{ {(1, 'a'): 2}[1, 'a'] }}|{{ {none: 1}[none] }}|{{ {missing: 1} }}
{{ {[1]: 2} }}
{{ {{}: 2} }}
{{ {'a': 1, 'a': 2} }}|{{ {'b': 1, 'a': 2, '10': 3, '2': 4} }}
{{ ["a'b", 'a"b', 'a\'"b', 'a\\b', 'a\nb\t\r', '\x00\x7f\x85\xa0\xad\u200b\u2028\ue000', '😀é日'] }}
{{ [1.0, 1e100, 2.5, true, none, missing] }}|{{ [range(3)] }}|{{ [s|safe] }}|{{ (s|safe,) }}
{{ s }}|{{ n }}|{{ f }}|{{ l }}|{{ d }}|{{ nothing }}|{{ yes }}|{{ missing }}|{{ mixed }}|{{ users }}
{{ s[0] }}|{{ s[-1] }}|{{ s[99] }}|{{ s[1:4] }}|{{ s[:-1] }}|{{ s[::-1] }}|{{ s[::2] }}|{{ s[-3:] }}|{{ s[5:2] }}|{{ s[4:1:-1] }}
{{ u[0] }}|{{ u[-1] }}|{{ u[1] }}|{{ u[::-1] }}|{{ u[:1] }}|{{ u[1:] }}|{{ u|length }}|{{ u|list }}|{{ u|first }}|{{ u|last }}|{{ u|reverse }}
{{ '😀x'[0] }}|{{ '😀x'[1] }}|{{ '😀😀'[1:] }}|{{ 'x😀'.find('😀') }}|{{ '😀x'.find('x') }}|{{ '😀a'.rfind('a') }}|{{ '😀a'.index('a') }}
{{ '😀'.center(5, '-') }}|{{ '😀'.ljust(3) }}|{{ '😀'|center(5) }}|{{ '%5s' % '😀' }}|{{ '{:>4}'.format('😀') }}|{{ '%.1s' % '😀b' }}
{{ '😀a😀'.split('😀') }}|{{ '😀a😀'.count('😀') }}|{{ '😀a'.replace('', '-') }}|{{ '😀a😀'.strip('😀') }}|{{ '😀'.zfill(3) }}
{{ l[0] }}|{{ l[-1] }}|{{ l[5] }}|{{ l[1:] }}|{{ l[::-1] }}|{{ l[:2] }}|{{ l[-2:] }}|{{ l[::2] }}|{{ l[true] }}|{{ l.0 }}|{{ l.9 }}
{{ l[1.0] }}|{{ l['0'] }}|{{ l['x'] }}|{{ l[none] }}|{{ l[5] is defined }}|{{ l[5:] }}|{{ l[10:0:-1] }}|{{ l[:-5:-1] }}
{{ l[::0] }}
{{ l['a':] }}
{{ l[missing:] }}
{{ l[none:2] }}|{{ l[:none] }}|{{ (1, 2, 3)[1:] }}|{{ (1, 2, 3)[::-1] }}|{{ range(5)[1:3] }}|{{ range(5)[-1] }}|{{ range(9)[::3]|list }}|{{ range(5)[::-1]|list }}
{{ d[1:] }}
{{ n[0] }}|{{ n.x }}|{{ none.x }}|{{ none[0] }}|{{ nothing.a is defined }}|{{ true.x }}|{{ 2.5.x }}
{{ missing.x }}
{{ missing[0] }}
{{ missing[1:] }}
{{ missing() }}
{{ s.nope() }}
{{ d.nope.x }}
{{ d['nope']['x'] }}
{{ d.b }}|{{ d['b'] }}|{{ d.nope }}|{{ d['nope'] is defined }}|{{ d.get('b') }}|{{ d.get('x') }}|{{ d.get('x', 5) }}|{{ d.get('c', 5) }}
{{ d.keys() }}|{{ d.values() }}|{{ d.items() }}|{{ d.keys()|list }}|{{ d.values()|list }}|{{ d.items()|list }}|{{ d|list }}|{{ d|length }}
{{ d.keys()[0] }}|{{ d.items()[0] }}|{{ d.items()|first }}|{{ d.keys()|last }}|{{ d.keys()|length }}|{{ d.keys() is iterable }}|{{ d.keys() is sequence }}
{{ d.pop('b') }}
{{ d.update({}) }}
{{ d.clear() }}
{{ d.setdefault('x', 1) }}
{{ d.popitem() }}
{{ l.append(1) }}
{{ l.pop() }}
{{ l.sort() }}
{{ l.insert(0, 1) }}
{{ d.pop }}|{{ l.append }}|{{ l.append is defined }}|{{ {'pop': 1}.pop }}|{{ {'pop': 1}['pop'] }}
{{ l.index(1) }}|{{ l.count(3) }}|{{ l.count(9) }}|{{ (1, 2, 1).count(1) }}|{{ (1, 2).index(2) }}|{{ l.copy() }}|{{ d.copy() == d }}|{{ d.fromkeys(['x', 'y'], 0) }}
{{ l.index(9) }}
{{ l.index(3, 1) }}
{{ ''.__class__ }}|{{ ''.__class__ is defined }}|{{ d.__len__ }}|{{ l['__len__'] }}|{{ {'_a': 1}._a }}|{{ {'__a': 1}.__a }}
{{ ''.__class__.mro() }}
{{ ''.__class__() }}
{{ {'items': 1}.items() }}|{{ {'items': 1}['items'] }}|{{ {'items': 1}.items is callable }}|{{ {'keys': 2, 'get': 3}.get('keys') }}
{{ d.items() == d.items() }}|{{ d.keys() == d.keys() }}|{{ d.copy().keys() == d.keys() }}
{{ (3).bit_length() }}|{{ (2.0).is_integer() }}|{{ (2.5).is_integer() }}|{{ n.real }}|{{ n.imag }}|{{ n.numerator }}|{{ f.real }}
{{ s.upper() }}|{{ s.lower() }}|{{ s.title() }}|{{ s.capitalize() }}|{{ s.swapcase() }}|{{ 'ß'.upper() }}|{{ 'ǆ'.title() }}|{{ 'ßA'.casefold() }}|{{ 'İ'.lower()|length }}
{{ "they're bill's".title() }}|{{ 'x1y2'.title() }}|{{ 'HELLO wORLD-foo'.title() }}|{{ ''.title() }}|{{ 'ﬁn'.capitalize() }}|{{ 'éa'.capitalize() }}
{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.strip('ab') }}|{{ ' a '.strip(none) }}|{{ '\u3000a\xa0'.strip() }}|{{ '\ufeffa'.strip()|length }}
{{ ' a '.strip(1) }}
{{ ' a '.strip(chars='a') }}
{{ 'a,b,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ ' a  b '.split() }}|{{ ' a  b '.split(' ') }}|{{ 'a b c'.split(none, 1) }}|{{ ''.split() }}|{{ ''.split(',') }}|{{ 'abc'.split(sep='b') }}|{{ 'a b c'.split(maxsplit=1) }}
{{ 'a,b,c'.rsplit(',', 1) }}|{{ ' a  b  c '.rsplit(none, 1) }}|{{ 'a,b'.rsplit(',') }}|{{ 'aaa'.rsplit('aa') }}|{{ 'aaa'.split('aa') }}|{{ ' a  b '.split(none, 0) }}|{{ ' a  b '.rsplit(none, 0) }}
{{ 'abc'.split('') }}
{{ 'abc'.split(1) }}
{{ lines.splitlines() }}|{{ 'a\r\nb\rc\x0bd\x1ce\u2028f'.splitlines() }}|{{ 'a\nb\n'.splitlines(true) }}|{{ ''.splitlines() }}|{{ '\n'.splitlines() }}|{{ 'a\n'.splitlines(keepends=true) }}
{{ 'abc'.startswith('a') }}|{{ 'abc'.startswith(('x', 'a')) }}|{{ 'abc'.endswith('c') }}|{{ 'abc'.startswith('b', 1) }}|{{ 'abc'.startswith('a', 0, 1) }}|{{ 'abc'.endswith('b', 0, 2) }}|{{ 'abc'.startswith('') }}|{{ 'abc'.startswith('', 9) }}|{{ 'abc'.startswith(()) }}
{{ 'abc'.startswith(1) }}
{{ 'abc'.startswith(['a']) }}
{{ 'abcabc'.find('c') }}|{{ 'abcabc'.find('c', 3) }}|{{ 'abcabc'.rfind('c') }}|{{ 'abc'.find('x') }}|{{ 'abc'.find('') }}|{{ 'abc'.find('c', -1) }}|{{ 'abc'.index('b') }}|{{ 'abcabc'.rindex('b') }}|{{ 'abc'.find('', 5) }}|{{ 'abc'.rfind('') }}
{{ 'abc'.index('x') }}
{{ 'abcabc'.count('bc') }}|{{ 'aaa'.count('aa') }}|{{ 'abc'.count('') }}|{{ 'abc'.count('c', 0, 2) }}
{{ 'abab'.replace('a', 'x') }}|{{ 'abab'.replace('a', 'x', 1) }}|{{ 'ab'.replace('', '-') }}|{{ 'ab'.replace('', '-', 2) }}|{{ 'aaa'.replace('aa', 'b') }}|{{ 'a'.replace('a', 'b', 0) }}|{{ 'a'.replace('a', 'b', -1) }}
{{ 'a'.replace(1, 2) }}
{{ 'a'.replace('a') }}
{{ 'a'.replace('a', 'b', count=1) }}
{{ ','.join(['a', 'b']) }}|{{ ''.join('abc') }}|{{ '-'.join({'a': 1, 'b': 2}) }}|{{ ','.join([]) }}|{{ ','.join(('a',)) }}|{{ ','.join(words|map('upper')) }}
{{ ','.join([1]) }}
{{ ','.join(1) }}
{{ 'a=b=c'.partition('=') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'abc'.partition('=') }}|{{ 'abc'.rpartition('=') }}
{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ 'abc'.removeprefix('x') }}|{{ 'abc'.removesuffix('') }}
{{ 'ab'.ljust(5) }}|{{ 'ab'.rjust(5, '.') }}|{{ 'ab'.center(5, '*') }}|{{ 'abc'.center(6) }}|{{ 'ab'.center(5) }}|{{ 'abc'.center(2) }}|{{ '5'.zfill(3) }}|{{ '-5'.zfill(4) }}|{{ '+x'.zfill(4) }}
{{ 'ab'.center(5, '**') }}
{{ 'a\tb'.expandtabs() }}|{{ 'a\tb\n\tc'.expandtabs(4) }}|{{ 'ab'.translate({97: 'x', 98: none}) }}|{{ 'a'.translate({97: 98}) }}
{{ 'abc'.isalpha() }}|{{ 'ab1'.isalnum() }}|{{ '12'.isdigit() }}|{{ '²'.isdigit() }}|{{ '½'.isnumeric() }}|{{ '12'.isdecimal() }}|{{ ' '.isspace() }}|{{ ''.isspace() }}|{{ 'Ab Cd'.istitle() }}|{{ 'ab'.islower() }}|{{ 'AB1'.isupper() }}|{{ '1'.isupper() }}|{{ 'a_1'.isidentifier() }}|{{ '1a'.isidentifier() }}|{{ 'é'.isascii() }}|{{ ''.isascii() }}|{{ 'a\n'.isprintable() }}|{{ 'a b'.isprintable() }}|{{ ''.isalpha() }}
{{ '{} {}'.format(1, 'a') }}|{{ '{1} {0}'.format('a', 'b') }}|{{ '{x}'.format(x=1) }}|{{ '{0.name}'.format(users[0]) }}|{{ '{0[name]}'.format(users[0]) }}|{{ '{0[1]}'.format(l) }}|{{ '{{}}'.format() }}|{{ '{!r}'.format('a') }}|{{ '{!s:>4}'.format(1) }}
{{ '{:5}|{:<5}|{:>5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd', 'e') }}|{{ '{:5}|{:<5}|{:05}|{:+}|{: }'.format(1, 2, 3, 4, 5) }}
{{ '{:.2f}|{:8.3f}|{:e}|{:.1%}|{:g}|{:,}|{:_}|{:,.2f}'.format(3.14159, 2.5, 12345.678, 0.256, 0.0001, 1234567, 1234567, 1234567.891) }}
{{ '{:x}|{:X}|{:#x}|{:b}|{:#b}|{:o}|{:c}|{:d}|{:08b}|{:#010x}'.format(255, 255, 255, 5, 5, 8, 65, 7, 5, 255) }}
{{ '{:{}}|{:{w}.{p}}'.format('a', 4, 2.34567, w=8, p=3) }}|{{ '{:.3}'.format('abcdef') }}|{{ '{:s}'.format('x') }}|{{ '{:10.2}|'.format('abc') }}
{{ '{:.3g}|{:g}|{:g}|{:.0f}|{:.0f}|{:.1f}|{}'.format(1234.5, 1e20, 100000, 0.5, 1.5, 0.25, 1e20) }}|{{ '{:G}'.format(1e-10) }}|{{ '{:n}'.format(5) }}
{{ '{:.2}|{:.5}|{:.1}'.format(1.0, 2.0, 1234.0) }}|{{ '{:05.1f}|{:+.1f}|{:=+6d}|{:<05}'.format(1.25, 2.0, 42, 3) }}|{{ '{:09,}'.format(1234) }}|{{ '{}'.format(true) }}|{{ '{:d}'.format(true) }}|{{ '{:>6}'.format(true) }}|{{ '{}'.format(none) }}|{{ '{}'.format(l) }}
{{ '{}'.format() }}
{{ '{x}'.format() }}
{{ '{} {1}'.format(1, 2) }}
{{ '{:d}'.format('a') }}
{{ '{:>5}'.format(none) }}
{{ '{:.2f}'.format('1') }}
{{ '{'.format() }}
{{ '}'.format() }}
{{ '{:d}'.format(1.5) }}
{{ '{a}-{b}'.format(**{'a': 1, 'b': 2}) }}|{{ '{}{}'.format(*[1, 2]) }}|{{ '{a}'.format_map({'a': 3}) }}
{{ '%s %s' % ('a', 1) }}|{{ '%s' % 'x' }}|{{ '%s' % l }}|{{ '%d' % 3.7 }}|{{ '%5d|%-5d|%05d|%+d|% d' % (1, 2, 3, 4, 5) }}|{{ '%.2f|%8.3f|%e|%g' % (3.14159, 2.5, 12345.678, 0.00001) }}
{{ '%x %X %#x %o %c %c' % (255, 255, 255, 8, 65, 'z') }}|{{ '%r %a' % ('é', 'é') }}|{{ '%%' % () }}|{{ '%5.1f%%' % 12.34 }}|{{ '%(a)s %(b)d' % {'a': 'x', 'b': 2} }}|{{ '%*d' % (5, 42) }}|{{ '%.*f' % (2, 1.5) }}|{{ '%-10s|' % 'ab' }}
{{ '%s' % none }}|{{ '%s' % true }}|{{ '%d' % true }}|{{ '%i' % 5 }}|{{ '%.0f %.0f' % (0.5, 1.5) }}|{{ '%5s|%.2s' % ('a', 'abc') }}|{{ '%g %g' % (100000, 1000000) }}|{{ '%s' % missing }}|{{ '%#o %#X' % (8, 255) }}|{{ '%+.1e' % 0.05 }}
{{ '%s' % (1, 2) }}
{{ '%s %s' % 'a' }}
{{ '%d' % 'a' }}
{{ '%s' % () }}
{{ '%(a)s' % {'b': 1} }}
{{ '%y' % 1 }}
{{ 'abc' % 1 }}
{{ 'abc' % [] }}|{{ 'abc' % {} }}
{{ '%' % 1 }}
{{ '%x' % 1.5 }}
{{ l|length }}|{{ s|length }}|{{ d|count }}|{{ e|length }}|{{ missing|length }}|{{ range(5)|length }}|{{ (1, 2)|length }}
{{ n|length }}
{{ none|length }}
{{ l|map('string')|length }}
{{ s|upper }}|{{ 5|upper }}|{{ none|upper }}|{{ true|lower }}|{{ missing|upper }}|{{ [1, 'A']|lower }}|{{ s|capitalize }}|{{ s|title }}|{{ "it's a-b (c)"|title }}|{{ 5|title }}|{{ none|capitalize }}
{{ ' a '|trim }}|{{ 'xax'|trim('x') }}|{{ missing|trim }}|{{ 5|trim }}|{{ none|trim }}|{{ [1]|trim }}|{{ true|trim }}|{{ ' a '|trim(chars=' ') }}|{{ ' x '|trim(none) }}
{{ 'aXb'|replace('X', '-') }}|{{ 'aaa'|replace('a', 'b', 2) }}|{{ 123|replace(2, 'x') }}|{{ missing|replace('a', 'b') }}|{{ none|replace('N', 'n') }}|{{ 'aa'|replace('a', 'b', count=1) }}|{{ [1]|replace('1', '2') }}|{{ 'ab'|replace('', '-') }}
{{ 'a'|replace('a') }}
{{ lines|indent }}|{{ lines|indent(2) }}|{{ lines|indent(2, true) }}|{{ lines|indent(2, true, true) }}|{{ lines|indent('> ') }}|{{ lines|indent(width=1, first=true) }}|{{ 'a\r\nb'|indent }}|{{ ''|indent }}|{{ 'a\n'|indent }}|{{ ''|indent(2, true) }}
{{ 5|indent }}
{{ none|indent }}
{{ missing|indent }}
{{ l|first }}|{{ l|last }}|{{ e|first }}|{{ []|last is defined }}|{{ d|first }}|{{ d|last }}|{{ missing|first }}|{{ missing|last }}|{{ range(3)|last }}|{{ (1, 2)|first }}|{{ [none]|first }}|{{ [none]|last }}
{{ none|first }}
{{ 5|last }}
{{ l|map('string')|last }}
{{ l|sort }}|{{ l|sort(reverse=true) }}|{{ words|sort }}|{{ words|sort(case_sensitive=true) }}|{{ words|sort(true) }}|{{ users|sort(attribute='age')|map(attribute='name')|list }}|{{ users|sort(attribute='age,name')|map(attribute='name')|list }}|{{ 'bac'|sort }}|{{ d|sort }}|{{ [none, none]|sort }}|{{ [[2], [1]]|sort }}|{{ [true, false, 0.5]|sort }}
{{ [1, 'a']|sort }}
{{ [none, 1]|sort }}
{{ users|sort }}
{{ 5|sort }}
{{ users|sort(attribute='age', reverse=true)|map(attribute='name')|join(',') }}|{{ users|sort(attribute='tags.0')|length }}
{{ missing|sort }}|{{ ()|sort }}
{{ [3, 1, 2]|min }}|{{ [3, 1, 2]|max }}|{{ words|min }}|{{ words|max }}|{{ words|max(true) }}|{{ []|min }}|{{ []|max is defined }}|{{ users|max(attribute='age') }}|{{ users|min(attribute='age') }}|{{ 'bca'|min }}|{{ [1, 2.5, true]|max }}|{{ missing|min }}
{{ [none, none]|max }}
{{ [1, 'a']|min }}
{{ [none]|min }}|{{ ['b', 'B']|min }}|{{ ['b', 'B']|max }}|{{ [1, 1.0]|max }}
{{ l|sum }}|{{ []|sum }}|{{ users|sum(attribute='age') }}|{{ l|sum(start=10) }}|{{ [1.5, 2]|sum }}|{{ [[1], [2]]|sum(start=[]) }}|{{ [true, true]|sum }}
{{ ['a']|sum }}
{{ ['a']|sum(start='') }}
{{ l|join }}|{{ l|join(', ') }}|{{ users|join('-', attribute='name') }}|{{ 'abc'|join('.') }}|{{ d|join(',') }}|{{ []|join(',') }}|{{ mixed|join('|') }}|{{ l|join(1) }}|{{ missing|join('x') }}|{{ [none, missing]|join('-') }}|{{ l|join(d='/') }}
{{ none|join }}
{{ 5|join }}
{{ l|reverse|list }}|{{ s|reverse }}|{{ d|reverse|list }}|{{ (1, 2)|reverse|list }}|{{ l|map('string')|reverse }}|{{ range(3)|reverse|list }}|{{ missing|reverse|list }}|{{ d.items()|reverse|list }}
{{ none|reverse }}
{{ s|list }}|{{ d|list }}|{{ range(3)|list }}|{{ (1, 2)|list }}|{{ missing|list }}|{{ d.items()|list }}|{{ 'a'|list|list }}
{{ none|list }}
{{ 5|list }}
{{ [1, 2, 1, 3, 2]|unique|list }}|{{ ['a', 'A', 'b']|unique|list }}|{{ ['a', 'A']|unique(true)|list }}|{{ users|unique(attribute='age')|map(attribute='name')|list }}|{{ [1, 1.0, true]|unique|list }}|{{ 'abca'|unique|join }}
{{ [[1], [1]]|unique|list }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }}|{{ [1, 2, 3]|batch(2, 0)|list }}|{{ []|batch(2)|list }}|{{ 'abcde'|batch(3, '-')|map('join')|list }}
{{ [1, 2, 3, 4, 5]|slice(2)|list }}|{{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }}|{{ []|slice(2)|list }}|{{ [1]|slice(3)|list }}
{{ [1]|slice(0)|list }}
{{ [1, 2]|batch(0)|list }}|{{ [1, 2]|batch(1)|list }}|{{ [1, 2]|batch(-1)|list }}|{{ [1, 2]|batch(-1, 'x')|list }}|{{ [1, 2]|batch(2, 'x')|list }}|{{ [1, 2]|batch(true)|list }}|{{ [1, 2, 3]|slice(1)|list }}|{{ [1, 2, 3]|slice(3, 'x')|list }}|{{ [1]|slice(-1)|list }}|{{ []|slice(-1)|list }}
{{ users|groupby('age') }}|{{ users|groupby('age')|map('first')|list }}|{{ users|groupby('age')|map(attribute='grouper')|list }}|{{ users|groupby(attribute='name')|map(attribute='list')|map('length')|list }}|{{ users|groupby('extra.k', default='-')|map('first')|list }}|{% for k, v in users|groupby('age') %}{{ k }}:{{ v|length }};{% endfor %}
{{ users|groupby('extra') }}
{{ d|dictsort }}|{{ {'b': 2, 'A': 1}|dictsort }}|{{ {'b': 2, 'A': 1}|dictsort(true) }}|{{ {'b': 1, 'a': 2}|dictsort(false, 'value') }}|{{ {'b': 1, 'a': 2}|dictsort(reverse=true) }}|{{ {'b': 1, 'a': 2}|dictsort(by='key') }}
{{ d|dictsort(by='x') }}
{{ d|dictsort(by='value') }}
{{ l|dictsort }}
{{ d|items|list }}|{% for k, v in d|items %}{{ k }}={{ v }},{% endfor %}|{{ missing|items|list }}
{{ l|items|list }}
{{ none|items|list }}
{{ l|map('string')|list }}|{{ words|map('upper')|join(',') }}|{{ users|map(attribute='name')|list }}|{{ users|map(attribute='tags.0')|list }}|{{ users|map(attribute='extra', default='none')|list }}|{{ users|map(attribute='extra.k', default='-')|list }}|{{ [[1, 2], [3]]|map('first')|list }}|{{ l|map('default', 5)|list }}|{{ ['a-b']|map('replace', '-', '+')|list }}|{{ none|map('upper')|list }}|{{ missing|map('upper')|list }}|{{ []|map('nope')|list }}|{{ users|map(attribute='nope')|list }}
{{ l|map('nope')|list }}
{{ l|map|list }}
{{ 5|map('string')|list }}
{{ users|map(attribute='extra.k')|list }}
{{ l|map(attribute='x', foo=1)|list }}
{{ l|map('string', 1)|list }}
{{ [0, 1, '', 'a', none]|select|list }}|{{ l|select('odd')|list }}|{{ l|select('gt', 1)|list }}|{{ l|select('in', [1, 2])|list }}|{{ [0, 1]|reject|list }}|{{ l|reject('odd')|list }}|{{ ['a', 1]|select('string')|list }}|{{ none|select|list }}|{{ missing|reject('odd')|list }}|{{ l|select('divisibleby', 3)|list }}|{{ 'abc'|select('in', 'ab')|join }}|{{ l|select('>', 1)|list }}|{{ l|select('==', 1)|list }}
{{ l|select('nope')|list }}
{{ users|selectattr('tags')|map(attribute='name')|list }}|{{ users|selectattr('age', 'equalto', 3)|map(attribute='name')|list }}|{{ users|selectattr('extra', 'defined')|list|length }}|{{ users|rejectattr('extra', 'defined')|list|length }}|{{ users|selectattr('extra.k', 'equalto', 'v')|list }}
{{ users|selectattr('name', 'in', ['Al', 'cy'])|map(attribute='age')|sum }}|{{ users|rejectattr('tags')|map(attribute='name')|list }}|{{ none|selectattr('x')|list }}|{{ users|selectattr('age', '==', 3)|list|length }}|{{ users|selectattr('name', 'ne', 'bob')|list|length }}|{{ []|selectattr('a', 'b', 'c')|list }}
{{ users|selectattr|list }}
{{ 5|selectattr('x')|list }}
{{ users|selectattr('extra.k.z.y')|list }}
{{ missing|default('x') }}|{{ none|default('x') }}|{{ none|default('x', true) }}|{{ ''|default('x', true) }}|{{ missing|d('y') }}|{{ missing|default }}|{{ 0|default(1, boolean=true) }}|{{ missing|default(default_value=2) }}|{{ d.x|default('z') }}|{{ missing|default(none) }}|{{ missing|default([])|list }}
{{ missing.x|default('y') }}
{{ '5'|int }}|{{ '5.7'|int }}|{{ 5.9|int }}|{{ -5.9|int }}|{{ 'x'|int }}|{{ 'x'|int(7) }}|{{ '0x1f'|int(0, 16) }}|{{ '1f'|int(base=16) }}|{{ '101'|int(0, 2) }}|{{ none|int }}|{{ true|int }}|{{ ' 5 '|int }}|{{ '1_000'|int }}|{{ '0b11'|int(0, 0) }}|{{ [1]|int(3) }}|{{ '1e3'|int }}|{{ 'inf'|int(4) }}|{{ '-7'|int }}|{{ ''|int }}
{{ missing|int }}
{{ missing|float }}
{{ '5'|float }}|{{ '1e3'|float }}|{{ 'x'|float }}|{{ 'x'|float(1.5) }}|{{ 5|float }}|{{ none|float }}|{{ true|float }}|{{ ' 2.5 '|float }}|{{ 'nan'|float }}|{{ '-inf'|float }}|{{ '.5'|float }}|{{ '5.'|float }}|{{ '1_0.5'|float }}
{{ -5|abs }}|{{ -2.5|abs }}|{{ (-5)|abs }}|{{ true|abs }}
{{ 'a'|abs }}
{{ none|abs }}
{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.567|round(2) }}|{{ 2.567|round(1, 'floor') }}|{{ 2.512|round(1, 'ceil') }}|{{ 5|round }}|{{ 15|round(-1) }}|{{ 25|round(-1) }}|{{ 1234.5|round(-2) }}|{{ 2.675|round(2) }}|{{ -2.5|round }}|{{ 2.1|round(method='ceil') }}|{{ 42.55|round|int }}|{{ 0.5|round }}|{{ 7|round(1, 'floor') }}|{{ true|round }}|{{ 1e20|round(2) }}
{{ 2.5|round(method='x') }}
{{ 'a'|round }}
{{ none|round }}
{{ 5|string }}|{{ none|string }}|{{ [1]|string|length }}|{{ true|string }}|{{ missing|string }}|{{ 2.0|string }}|{{ 'a'|string }}
{{ 'a'|e }}|{{ html|e }}|{{ html|escape }}|{{ html|safe }}|{{ html|safe|e }}|{{ html|forceescape }}|{{ html|safe|forceescape }}|{{ html|e|e }}|{{ 5|e }}|{{ none|e }}|{{ missing|e }}
{{ html|striptags }}|{{ '<p>a  b</p>\n<!-- <x> -->c &amp; d &lt; &#65; &#x42;'|striptags }}|{{ 'a < b'|striptags }}|{{ 5|striptags }}
{{ ('<' ~ html|safe) }}|{{ (html|safe) ~ '<' }}|{{ '<' + (html|safe) }}|{{ (html|safe) + '<' }}|{{ html|safe|upper }}|{{ html|safe|replace('b', '<') }}|{{ (html|safe)[0] }}|{{ (html|safe).upper() }}|{{ [html|safe] }}
{{ ('%s' | safe) % '<' }}|{{ ('%s-%s' | safe) % ('<', 1) }}|{{ ('{}' | safe).format('<') }}|{{ ('%s'|safe)|format('<') }}|{{ (','|safe).join(['<', 'a']) }}|{{ ('a'|safe) * 2 }}|{{ 'x'|safe is escaped }}|{{ 'x' is escaped }}|{{ ('a'|safe) == 'a' }}|{{ {'a': 1}['a'|safe] }}|{{ ('a,<'|safe).split(',') }}|{{ ('a'|safe).replace('a', '<') }}|{{ ('%d'|safe) % 5 }}
{{ (html|safe)|length }}|{{ html|safe|list|first }}|{{ ('b'|safe) in 'abc' }}|{{ ('a'|safe) ~ 1 }}|{{ 'a'|safe is string }}|{{ ('<'|safe)|tojson }}|{{ (' a '|safe).strip()|e }}|{{ (' <'|safe)|trim|e }}|{{ [1, '<'|safe]|join('<') }}|{{ ('a'|safe)|indent(2, true)|e }}
{{ s|truncate(5) }}|{{ s|truncate(8) }}|{{ 'foo bar baz qux'|truncate(9) }}|{{ 'foo bar baz qux'|truncate(9, true) }}|{{ 'foo bar baz qux'|truncate(11) }}|{{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}|{{ 'abcdefghijklmnop'|truncate(5, end='!') }}|{{ u|truncate(3, true, '', 0) }}
{{ s|truncate(1) }}
{{ 5|truncate }}
{{ s|center(20) }}|{{ 5|center(4) }}|{{ s|wordcount }}|{{ 'a b, c-d é_x'|wordcount }}|{{ 'ab'|center }}|{{ none|center(6) }}
{{ 'The quick brown fox jumps'|wordwrap(10) }}|{{ 'a bb ccc dddd'|wordwrap(4) }}|{{ 'abcdefghij'|wordwrap(4) }}|{{ 'abcdefghij'|wordwrap(4, false) }}|{{ 'well-known word'|wordwrap(6) }}|{{ 'well-known word'|wordwrap(6, break_on_hyphens=false) }}|{{ 'a b\n\nc d'|wordwrap(1) }}|{{ 'aaa bbb'|wordwrap(3, wrapstring='|') }}|{{ 'x  y   z'|wordwrap(3) }}
{{ 0|filesizeformat }}|{{ 1|filesizeformat }}|{{ 999|filesizeformat }}|{{ 1000|filesizeformat }}|{{ 1234567|filesizeformat }}|{{ 1234567|filesizeformat(true) }}|{{ 1e15|filesizeformat }}|{{ '2500'|filesizeformat }}|{{ 1e30|filesizeformat }}
{{ 'x'|filesizeformat }}
{{ 'a b/c?d=é&f'|urlencode }}|{{ {'a': 1, 'b c': 'd/e'}|urlencode }}|{{ [('a', 1), ('b', 2)]|urlencode }}|{{ 5|urlencode }}|{{ "a'(b)*!~-_."|urlencode }}
{{ {'class': 'a b', 'id': none, 'x': '<"'}|xmlattr }}|{{ {}|xmlattr }}|{{ {'a': 1}|xmlattr(false) }}|{{ {'a': missing}|xmlattr }}
{{ {'a b': 1}|xmlattr }}
{{ 'see http://example.com/x?y=1, www.foo.org. a@b.com (https://x.io)'|urlize }}|{{ 'http://example.com/long/path'|urlize(10, true) }}|{{ 'http://a.com'|urlize(target='_blank', rel='x y') }}|{{ 'tel:123'|urlize(extra_schemes=['tel:']) }}|{{ '<b> foo.com mailto:a@b.cc'|urlize }}
{{ [1, {'b': 2, 'a': 'x'}]|pprint }}|{{ 'a'|pprint }}|{{ 5|pprint }}|{{ users|pprint }}|{{ {'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa': ['bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'cccccccccccccccccccccccc'], 'd': 1}|pprint }}
{{ '%s-%s'|format(1, 'a') }}|{{ '%(a)s'|format(a=2) }}|{{ '%d%%'|format(5) }}|{{ 'x'|format }}
{{ '%s'|format(1, a=2) }}
{{ '%s'|format }}
{{ s|attr('upper') is callable }}|{{ d|attr('b') }}|{{ d|attr('b') is defined }}|{{ (s|attr('upper'))() }}|{{ namespace(a=1)|attr('a') }}|{{ l|attr('append') is defined }}
{{ missing|attr('x') }}
{{ d|tojson }}|{{ mixed|tojson }}|{{ (1, 2)|tojson }}|{{ 'é😀"\\\n\x01\x7f\u2028</script>'|tojson }}|{{ none|tojson }}|{{ 1.0|tojson }}|{{ 1e100|tojson }}|{{ {1: 'a', none: 'b', true: 'c', 2.5: 'd'}|tojson }}|{{ []|tojson }}|{{ {}|tojson }}
{{ d|tojson(indent=2) }}|{{ mixed|tojson(indent=4) }}|{{ []|tojson(indent=2) }}|{{ {'a': {}}|tojson(indent=2) }}|{{ [1]|tojson(indent=0) }}|{{ [[1]]|tojson(indent='--') }}|{{ [1]|tojson(indent=true) }}|{{ [1]|tojson(indent=none) }}
{{ d|tojson(separators=(',', ':')) }}|{{ d|tojson(separators=[';', '=']) }}|{{ {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true) }}|{{ 'é😀'|tojson(ensure_ascii=true) }}|{{ 'é'|tojson(true) }}|{{ [1, 2]|tojson(false, 2) }}|{{ {'b': 1, 'a': 2, '10': 3, '9': 4}|tojson }}|{{ d|tojson(indent=1, separators=(',', ':')) }}
{{ missing|tojson }}
{{ [missing]|tojson }}
{{ range(3)|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ d.items()|tojson }}
{{ d.keys()|tojson }}
{{ l|map('string')|tojson }}
{{ namespace(a=1)|tojson }}
{{ {'a': 1, 2: 3}|tojson(sort_keys=true) }}
{{ 'a'|tojson(nope=1) }}
{{ 1|random }}
{{ []|random }}|{{ [5]|random }}
{{ s|nope }}
{% if false %}{{ s|nope }}{% endif %}ok
{{ s|nope if false else 'ok' }}
{% if true %}{{ s|nope }}{% endif %}
{% for x in [] %}{{ x|nope }}{% endfor %}
{% if false %}{% for x in l %}{{ x|nope }}{% endfor %}{% endif %}
{{ s is nope }}
{% if false %}{{ s is nope }}{% endif %}ok
{{ 'upper' is filter }}|{{ 'nope' is filter }}|{{ 'odd' is test }}|{{ 'nope' is test }}
{{ 3 is odd }}|{{ 4 is even }}|{{ 6 is divisibleby 3 }}|{{ 6 is divisibleby(4) }}|{{ -3 is odd }}|{{ 3.0 is odd }}|{{ true is odd }}
{{ 'a' is odd }}
{{ none is even }}
{{ 5 is divisibleby 0 }}
{{ s is defined }}|{{ missing is defined }}|{{ missing is undefined }}|{{ missing is not defined }}|{{ not missing is defined }}|{{ none is none }}|{{ missing is none }}|{{ none is not none }}|{{ d.b is defined }}|{{ none is defined }}
{{ true is boolean }}|{{ 1 is boolean }}|{{ true is true }}|{{ 1 is true }}|{{ false is false }}|{{ 0 is false }}|{{ 1 is integer }}|{{ true is integer }}|{{ 1.0 is integer }}|{{ 1.0 is float }}|{{ 1 is float }}|{{ 1 is number }}|{{ true is number }}|{{ 1.5 is number }}|{{ '1' is number }}
{{ 'a' is string }}|{{ 1 is string }}|{{ [] is sequence }}|{{ 'a' is sequence }}|{{ {} is sequence }}|{{ () is sequence }}|{{ 1 is sequence }}|{{ range(2) is sequence }}|{{ missing is sequence }}|{{ none is sequence }}|{{ {} is mapping }}|{{ [] is mapping }}|{{ missing is mapping }}
{{ [] is iterable }}|{{ 'a' is iterable }}|{{ {} is iterable }}|{{ 1 is iterable }}|{{ none is iterable }}|{{ missing is iterable }}|{{ range(2) is iterable }}|{{ l|map('string') is iterable }}|{{ l|map('string') is sequence }}|{{ namespace() is iterable }}|{{ namespace() is mapping }}
{{ 'ab' is lower }}|{{ 'AB' is upper }}|{{ 'Ab' is lower }}|{{ 1 is lower }}|{{ none is upper }}|{{ 'A1' is upper }}|{{ '1' is lower }}
{{ range is callable }}|{{ s is callable }}|{{ missing is callable }}|{{ s.upper is callable }}|{{ dict is callable }}
{{ 1 is sameas 1 }}|{{ true is sameas true }}|{{ none is sameas none }}|{{ d is sameas d }}|{{ [] is sameas [] }}|{{ 1 is sameas true }}
{{ 1 is eq 1 }}|{{ 1 is equalto 1.0 }}|{{ 1 is ne 2 }}|{{ 2 is gt 1 }}|{{ 2 is ge 2 }}|{{ 1 is lt 2 }}|{{ 1 is le 1 }}|{{ 2 is greaterthan 1 }}|{{ 1 is lessthan 1 }}|{{ 1 is in [1] }}|{{ 'a' is in 'abc' }}|{{ 1 is not in [1] }}
{{ 1 is gt 'a' }}
{{ 1 is eq }}
{{ 1 is defined is true }}
{{ 1 is eq 1 and 2 is eq 2 }}|{{ 1 is odd or false }}|{{ 'x' if 1 is odd else 'y' }}|{{ 3 is divisibleby(3) and true }}|{{ [1, 2] is eq [1, 2] }}|{{ 'a' is in ['a'] }}|{{ 1 + 1 is eq 1 }}|{{ s is string and s is not number }}
{% if 1 %}a{% endif %}{% if 0 %}b{% else %}c{% endif %}{% if 0 %}d{% elif 1 %}e{% else %}f{% endif %}{% if [] %}g{% elif {} %}h{% elif '' %}i{% else %}j{% endif %}
{% if 1: %}a{% endif %}
{% if yes if no else 1 %}a{% endif %}|{% if (yes if no else 1) %}a{% endif %}|{% if no %}{% elif yes if no else 1 %}a{% endif %}
{% if 1, %}a{% endif %}{% if () %}b{% endif %}{% if namespace() %}c{% endif %}{% if range(0) %}d{% endif %}{% if l|map('string') %}e{% endif %}{% if 0.0 %}f{% endif %}{% if none %}g{% endif %}
{% if 1 %}a
{% if 1 %}a{% endfor %}
{% endif %}
{% else %}
{% if %}a{% endif %}
{% nope %}
{%  %}
{{ }}
{{ 1
{{ 1 %}
{{ (1 }}
{{ [1, 2 }}
{{ 1 + }}
{{ 1 2 }}
{{ a b }}
{{ $ }}
{{ 1 ! 2 }}
{{ a.1b }}
{{ 'a'..b }}
{{ {'a': 1 }}
{{ {'a'} }}
{{ [1]) }}
{# open
{% for x in l %}{{ x }}{% endfor %}|{% for x in [] %}a{% else %}b{% endfor %}|{% for x in l %}a{% else %}b{% endfor %}|{% for c in 'ab' %}{{ c }}.{% endfor %}|{% for k in d %}{{ k }}{% endfor %}|{% for x in missing %}a{% else %}none{% endfor %}|{% for x in (1, 2) %}{{ x }}{% endfor %}|{% for x in 1, 2 %}{{ x }}{% endfor %}
{% for x in none %}a{% endfor %}
{% for x in 5 %}a{% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }};{% endfor %}|{% for a, b in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}|{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}|{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}|{% for a, b in ['xy'] %}{{ a }}{{ b }}{% endfor %}|{% for (a, b) in [(1, 2)] %}{{ b }}{% endfor %}|{% for a, in [(1,)] %}{{ a }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [(1,)] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in d %}{% endfor %}
{% for x in l if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }}{{ loop.last }};{% endfor %}|{% for x in l if x > 9 %}a{% else %}none{% endfor %}|{% for x in l if loop is defined %}{{ x }}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x // 2) }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.previtem is defined }};{% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}|{% for x in l %}{{ loop }}{% endfor %}|{% for x in l %}{{ loop.nope }}{% endfor %}|{% for x in l %}{{ loop['index'] }}{% endfor %}
{% for x in l %}{{ loop.cycle() }}{% endfor %}
{% for x in l|map('string') %}{{ x }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }};{% endfor %}|{% for x in range(3) %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}|{% for x in 'ab' %}{{ loop.length }}{% endfor %}|{% for x in d %}{{ loop.nextitem }}{% endfor %}
{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}|{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }},{% endfor %}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}|{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}|{% for x in l %}{% break %}{% else %}else{% endfor %}|{% for x in l %}{% for y in l %}{% break %}{% endfor %}{{ x }}{% endfor %}|{% for x in l %}a{% continue %}b{% else %}c{% endfor %}
{% break %}
{% continue %}
{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for x in l %}{% else %}{% break %}{% endfor %}
{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% for x in l %}{% with %}{% break %}{% endwith %}{% endfor %}ok
{% for x in l %}{% set y %}a{% break %}b{% endset %}{{ y }}{% endfor %}ok
{% for x in l %}{% filter upper %}a{% continue %}b{% endfilter %}{% endfor %}ok
{% for item in tree recursive %}{{ item.v }}{{ loop.depth }}({{ loop(item.c) }}){% endfor %}|{% for item in tree recursive %}{{ item.v }}{% if item.c %}[{{ loop(item.c) }}]{% endif %}{% else %}empty{% endfor %}|{% for x in [[1, [2]], 3] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}
{% for x in l %}{{ loop(x) }}{% endfor %}
{% for loop in l %}{% endfor %}
{% for x in l %}{% set loop = 1 %}{% endfor %}
{% for 1 in l %}{% endfor %}
{% for x.y in l %}{% endfor %}
{% for x l %}{% endfor %}
{% for x in l %}{{ x }}
{% set x = 1 %}{% for x in l %}{{ x }}{% endfor %}{{ x }}|{% set y = 1 %}{% for i in l %}{% set y = i %}{{ y }}{% endfor %}{{ y }}|{% for i in l %}{{ y }}{% set y = i %}{% endfor %}|{% for i in l %}{{ q }}{% set q = i %}{{ q }}{% endfor %}{{ q }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}|{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set (a, b) = (3, 4) %}{{ a }}{{ b }}|{% set a, b = 'xy' %}{{ a }}{{ b }}|{% set t = 1, 2 %}{{ t }}|{% set a = b = 1 %}
{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}|{% set n = n + 1 %}{{ n }}|{% set s %}a{{ n }}{% endset %}{{ s }}|{% set s | upper %}abc{% endset %}{{ s }}|{% set s | replace('a', 'b') | upper %}aac{% endset %}{{ s }}|{% set w %}{% set inner = 1 %}{% endset %}{{ inner }}
{% set true = 1 %}
{% set 1 = 2 %}
{% set a.b = 1 %}
{% set x[0] = 1 %}
{% set [a] = [1] %}
{% set a, b = 1 %}
{% set a, b = 1, 2, 3 %}
{% set a %}x
{% set x = %}
{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{% set ns.b = 3 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns }}|{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}|{% set ns2 = namespace({'x': 1}, y=2) %}{{ ns2.x }}{{ ns2.y }}|{% set ns.z %}block{% endset %}{{ ns.z }}|{% set ns.p, ns.q = 1, 2 %}{{ ns.p }}{{ ns.q }}|{{ ns['a'] }}|{{ ns['nope'] is defined }}
{% set ns = namespace([('a', 1)]) %}{{ ns.a }}|{{ namespace() }}|{{ namespace is callable }}|{% set n2 = namespace(_x=1) %}{{ n2._x }}|{{ dict(a=1, b=2) }}|{{ dict([('a', 1)]) }}|{{ dict({'a': 1}, b=3) }}|{{ dict() }}|{{ dict }}|{{ namespace }}|{% set f = namespace %}{{ f(a=1).a }}
{% set ns = namespace(1) %}
{% set d.x = 1 %}
{{ dict(1) }}
{{ dict([1]) }}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}|{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}|{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x }}|{% with a, b = 1, 2 %}{% endwith %}
{% with x = 1 %}{% with y = x %}{{ x }}{{ y }}{% endwith %}{% endwith %}|{% with (a, b) = (1, 2) %}{{ a }}{{ b }}{% endwith %}
{% filter upper %}abc{{ s }}{% endfilter %}|{% filter replace('a', 'b')|upper %}aac{% endfilter %}|{% filter trim %}  x  {% endfilter %}|{% filter indent(2) %}a{{ '\n' }}b{% endfilter %}|{% filter upper %}{% set v = 1 %}{% endfilter %}{{ v }}|{% filter length %}abc{% endfilter %}
{% filter nope %}a{% endfilter %}
{% macro m(a, b=2, *c) %}{% endmacro %}
{% macro m(a, b=2) %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}{{ m }}{{ m.name }}{{ m.arguments }}
{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}|{% macro k() %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ k(1, 2, x=3) }}|{% macro c() %}{{ caller() }}{% endmacro %}{% call c() %}body{% endcall %}|{% macro c2() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) c2() %}{{ a }}-{{ b }}{% endcall %}|{% call(a, b=5) c2() %}{{ a }}{{ b }}{% endcall %}
{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}|{% macro r(n) %}{{ n }}{% if n > 0 %},{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(3) }}|{% macro o() %}{% macro i() %}in{% endmacro %}{{ i() }}{% endmacro %}{{ o() }}|{% set g = 1 %}{% macro w() %}{{ g }}{% set g = 2 %}{{ g }}{% endmacro %}{{ w() }}{{ g }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}|{% macro p() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ p() }}{% call p() %}x{% endcall %}|{{ m()|upper }}|{{ m() ~ m() }}|{{ m() is string }}|{% macro sp(a) %}{{ a }}{% endmacro %}{{ sp(*[1]) }}{{ sp(**{'a': 2}) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(x=1) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
{% macro m() %}{% endmacro %}{% call m() %}x{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% call 1 %}{% endcall %}
{% call s %}{% endcall %}
{% macro m(a=1, b) %}{% endmacro %}
{% macro %}{% endmacro %}
{{ m(a=1, a=2) }}
{{ range(1, b=2) }}
{{ range(**{1: 2}) }}
{{ range(a=1, 2) }}
{{ range(3)|list }}|{{ range(1, 4)|list }}|{{ range(5, 0, -2)|list }}|{{ range(0)|list }}|{{ range(3) }}|{{ range(1, 9, 2) }}|{{ range(true)|list }}|{{ range(3).start }}{{ range(3).stop }}{{ range(3).step }}|{{ range(5).index(3) }}|{{ range(5).count(9) }}|{{ range(-3)|list }}
{{ range() }}
{{ range(1.5) }}
{{ range('a') }}
{{ range(1, 2, 0) }}
{{ range(1000000) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}|{% set j = joiner(', ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}|{% set j = joiner() %}{{ j() }}{{ j() }}
{{ cycler() }}
{{ raise_exception('boom') }}
{{ raise_exception() }}
{{ strftime_now('%%') }}|{{ strftime_now('x') }}|{{ strftime_now('%Z%z') }}
{{ strftime_now(1) }}
{% raw %}{{ a }}{% b %}{# c #}{% endraw %}|{%- raw -%} x {%- endraw -%} y|{% raw %}a
{% raw %}{{ 'a' }}{%endraw%}ok
{% raw a %}{% endraw %}
{% autoescape true %}{{ html }}{{ html|safe }}{{ '<' ~ html|safe }}{{ [html] }}{{ html|e }}{{ '<a>' }}{{ 5 }}{% set x = '<' %}{{ x }}{% set y %}<{{ x }}{% endset %}{{ y }}{% endautoescape %}{{ html }}
{% autoescape true %}{{ ['<', '>'|safe]|join('&') }}|{{ ['<', '>']|join('&') }}|{{ '<a>'|replace('a', '<') }}|{{ '<a>'|safe|replace('a', '<') }}|{{ '<'|upper }}|{{ {'a': '<'}|xmlattr }}|{% filter upper %}<a>{{ '<' }}{% endfilter %}|{{ '<'|tojson }}|{{ none }}|{{ missing }}{% endautoescape %}
{% autoescape false %}{{ html }}{% endautoescape %}|{% macro m(x) %}<{{ x }}>{% endmacro %}{% autoescape true %}{{ m('<') }}{% macro k(x) %}<{{ x }}>{% endmacro %}{{ k('<') }}{% endautoescape %}{{ m('<') }}|{% autoescape true %}{% call c3() %}{% endcall %}{% endautoescape %}
{% autoescape true %}{% for i in ['<'] recursive %}{{ i }}{% endfor %}{{ ('a' if false) }}{{ '%s'|format('<') }}{{ 'a<'|e|length }}{{ '<' + '>' }}{{ ('<'|safe) + '<' }}{{ '<' * 2 }}{% endautoescape %}
{% generation %}a{{ s }}{% endgeneration %}b|{% generation %}{% set gg = 1 %}{{ gg }}{% endgeneration %}{{ gg }}|{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% generation %}a
{% block a %}x{{ s }}{% endblock %}|{% block b %}{% endblock b %}{{ self.a() }}|{% set q = 1 %}{% block c %}{{ q }}{% endblock %}|{% for i in l %}{% block d scoped %}{{ i }}{% endblock %}{% endfor %}|{% for i in l %}{% block e %}{{ i }}{% endblock %}{% endfor %}
{% block a %}{% endblock %}{% block a %}{% endblock %}
{% macro m() %}{% block g %}x{% endblock %}{% endmacro %}{{ self.g() }}|{% if no %}{% block h %}y{% endblock %}{% elif no %}{% block i %}z{% endblock %}{% else %}{% block j %}w{% endblock %}{% endif %}{{ self.h() }}{{ self.i() }}{{ self.j() }}|{% for x in [] %}{% block k %}k{% endblock %}{% else %}{% block n2 %}n{% endblock %}{% endfor %}{{ self.k() }}{{ self.n2() }}|{% filter upper %}{% block o %}o{% endblock %}{% endfilter %}{{ self.o() }}|{% with a=1 %}{% block p %}p{% endblock %}{% endwith %}{{ self.p() }}|{% set q %}{% block r %}r{% endblock %}{% endset %}{{ self.r() }}|{% macro c() %}{{ caller() }}{% endmacro %}{% call c() %}{% block t %}t{% endblock %}{% endcall %}{{ self.t() }}|{% autoescape false %}{% block v %}v{% endblock %}{% endautoescape %}{{ self.v() }}|{% generation %}{% block w %}w{% endblock %}{% endgeneration %}{{ self.w() }}|{% block y %}y{% block y2 %}2{% endblock %}{% endblock %}{{ self.y2() }}
{% block a %}{{ super() }}{% endblock %}
{% block a-b %}{% endblock %}
{% include 'x' %}
{% import 'x' as y %}
{% from 'x' import y %}
{% extends 'x' %}
{% if false %}{% include 'x' %}{% endif %}ok
{% print 1 %}|{% print 1, 'a' %}|{% print %}
{% do 1 %}
{% trans %}a{% endtrans %}
{% debug %}
  {% if true %}  a  {% endif %}  b
a {%- if true -%} b {%- endif -%} c
a {{- 1 -}} b {{ 2 }} c {#- x -#} d {# y #} e
a {%+ if true %} b {%+ endif +%} c
{{-1}}|{{ -1 }}|{{- 1 -}}|{{ 1-1 }}|{{ 1 -1 }}|{{ 1 - -1 }}|{{ --1 }}|{{ +-1 }}
{{ a.b.c if false }}|{{ a if false else b }}
{{ {'a': {'b': 1}}.a.b }}|{{ {'a':{'b':1}} }}|{{{'a': 1}.a}}
{{ "}}" }}|{{ '%}' }}|{{ '{{' }}|{{ '{%' }}|{{ '{#' }}|{{ '#}' }}|{# {{ }} {% %} #}x|{{ '-%}' }}
{ { 1 } }|{ % %}|{}|}}|%}|#}|{{ '{' }}|{
{{ s.upper().lower()|title }}|{{ s|upper|lower }}|{{ (s|upper).lower() }}|{{ s|replace('l', 'L')|length + 1 }}|{{ -l|first }}|{{ -(l|first) }}|{{ not l|first == 3 }}|{{ 1 + l|first }}|{{ l|first ** 2 }}|{{ s|length > 3 }}
{{ s['upper']() }}|{{ s['length'] }}|{{ d['items']() | list | length }}|{{ 'a'.upper.x }}|{{ s.upper is defined }}|{{ (s.upper)() }}|{% set up = s.upper %}{{ up() }}|{{ l.index is callable }}
{{ range.x }}|{{ self.x }}|{{ self }}|{{ namespace(a=[1]).a[0] }}|{{ [1, [2, [3]]][1][1][0] }}|{{ {'a': [{'b': 5}]}.a[0].b }}|{{ users[0].tags[0] }}|{{ users[-1]['extra']['k'] }}
{{ caller }}|{{ varargs }}|{{ kwargs }}|{{ loop }}|{{ _x }}|{{ true }}{{ True }}{{ none }}{{ None }}{{ false }}{{ False }}|{{ TRUE }}|{{ nil }}
{{ é }}|{% set é = 1 %}{{ é }}|{% set 变量 = 2 %}{{ 变量 }}|{% set _a1 = 3 %}{{ _a1 }}
{% set abé = 1 %}{{ abé }}{{ ab }}|{% set éa_1 = 2 %}{{ éa_1 }}
{{ budget | default({0: 0, 512: 128}) | dictsort }}|{{ {0: 0, 512: 128}[512] }}|{{ 'x{}y'.format(n) }}|{{ ['a'] | map('upper') | list | tojson }}|{{ 'type: ' ~ (['string', 'null'] if true else 'x') | upper }}
{{ messages[0]['content'] }}|{{ messages|length }}|{{ messages[0] }}|{{ messages[1:] }}|{{ messages[::-1][0].role }}|{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}
{{ tools }}|{{ documents }}|{{ tools is none }}|{{ add_generation_prompt }}
{{ 'a' if messages and messages[0].role == 'user' else 'b' }}|{{ messages[0].tool_calls is defined }}|{{ messages[0].get('name', 'x') }}|{{ messages[0].content.split('h')[-1] }}|{{ messages[0].content[0] | upper }}
{{ [1, 2, 3][1:]|first }}|{{ 'abc'[1:]|upper }}|{{ (1, 2)[0] }}|{{ 'a,b'.split(',')[1] }}|{{ 'a' ~ 'b'|upper }}|{{ ('a' ~ 'b')|upper }}|{{ 'x' * n }}|{{ n * 'x' }}|{{ '=' * 5 ~ '>' }}
{{ 'abc' | batch(2) | map('join', '-') | join('|') }}|{{ [3, 1]|sort|join }}|{{ 'a b c'.split()|map('upper')|join(' ') }}|{{ [1, 2, 3]|select('ge', 2)|map('string')|join('+') }}|{{ {'x': [1, 2]}.x|sum }}|{{ (users|map(attribute='age')|list)[0] }}
{{ 1 if true }}{{ 2 if false }}|{{ (1 if false) is undefined }}|{{ [1 if false else 2] }}|{{ {'a': 1 if true else 2} }}|{{ 'a' if 1 if 0 else 1 else 'b' }}
{{ 1;2 }}
{{ a = 1 }}
{{ lambda: 1 }}
{{ [x for x in l] }}
{{ l[0:1, 1] }}
{{ 5 is }}
{{ 5 | }}
{{ 5 | 5 }}
{{ 'a' not 'b' }}
{{ not }}
{{ *l }}
{{ f(*l, *l) }}
{% set x = y|z %}
{{ (1, 2) | join(',') }}|{{ () | length }}|{{ (1,) | tojson }}|{{ ((1, 2), 3)[0][1] }}
{{ 9 // 2 * 2 }}|{{ 2 * 3 // 4 }}|{{ 2 + 3 * 4 }}|{{ (2 + 3) * 4 }}|{{ 10 - 2 - 3 }}|{{ 2 ** 3 * 2 }}|{{ -3 ** 2 }}|{{ 7 - -3 }}|{{ 100 / 10 / 5 }}|{{ 1 - 1 ~ 1 }}
{{ 'a b'|indent(none) }}
{{ [[1, 2, 3]]|urlencode }}
{{ [(1, 2), ('a b', '&')]|urlencode }}|{{ {'a': 'b c', 'é': '/'}|urlencode }}
{{ l|xmlattr }}
{{ '0x1F'|int(0, 16) }}|{{ '0b11'|int(7, 16) }}|{{ '0o17'|int(0, 8) }}|{{ '0x1F'|int(5, 8) }}|{{ '0b11'|int(0, 2) }}|{{ '1_0'|int }}|{{ '_10'|int(3) }}|{{ '10_'|int(3) }}|{{ '1__0'|int(3) }}|{{ '0X1f'|int(0, 16) }}|{{ '-0x1F'|int(0, 16) }}|{{ '12'|int(0, 0) }}|{{ '0x12'|int(0, 0) }}|{{ '0b12'|int(4, 0) }}|{{ '012'|int(9, 0) }}|{{ '0b11'|int(0, 12) }}
{{ missing|abs }}
{{ missing|round }}
{{ 'a'|abs }}
{{ 2.5|round(400) }}|{{ 2.5|round(-400) }}|{{ -2.5|round(-400) }}|{{ 2.5|round(-308) }}|{{ 25|round(-1) }}|{{ 35|round(-1, 'floor') }}
{{ huge|float|int }}
{{ (-(huge|float))|int(5) }}
{{ 'nan'|float|int(5) }}|{{ '1e400'|int(5) }}|{{ '1e5'|int }}|{{ 'inf'|int(6) }}|{{ 'nan'|int(7) }}
{{ [1]|tojson(separators=(',', ':', ';')) }}
{{ [1, 2]|tojson(separators=(',', ':')) }}|{{ {'a': [1, 2]}|tojson(separators=(', ', '=')) }}
{{ {true: 1, false: 2, none: 3, 4: 5, 'a': 6}|tojson }}|{{ {1.5: 1}|tojson }}
{{ '%(a)s' % l }}
{{ '%(a)s' % 'x' }}
{{ '%c' % 'ab' }}
{{ '%c' % 1.5 }}
{{ '%c%c' % ('a', 233) }}
{{ '%*d' % ('a', 1) }}
{{ '%*d|%-*d|%.*f' % (5, 1, 4, 2, 2, 1.5) }}
{{ '{:{{}}}'.format(1) }}
{{ '{:{}}|{:>{}}|{:{w}.{p}f}'.format(1, 5, 'a', 3, 2.5, w=7, p=2) }}
{{ '{:{:{}}}'.format(1, 2, 3) }}
{{ '{a[}'.format(a=1) }}
{{ '{a]}'.format(a=1) }}
{{ '{0[a]b}'.format({'a': 1}) }}
{{ '{0.}'.format('a') }}
{{ '{!a}|{!r}|{!s}|{0!a:>8}'.format('é', 'b', 'c') }}
{{ '{!x}'.format(1) }}
{{ '{!}'.format(1) }}
{{ '{:!!}'.format(1) }}
{{ '{:_n}'.format(1.5) }}
{{ '{:,n}'.format(1) }}
{{ '{:.2d}'.format(1) }}
{{ '{:,x}'.format(255) }}
{{ '{:_x}|{:_b}|{:_o}|{:_X}|{:,d}|{:_d}'.format(65535, 255, 4096, 65535, 1234567, 1234567) }}
{{ '{:+c}'.format(65) }}
{{ '{:#c}'.format(65) }}
{{ '{:c}|{:5c}|{:<5c}'.format(65, 66, 67) }}
{% set i = huge|float %}{{ '{:f}|{:e}|{:g}|{:%}|{:F}|{:E}|{:n}|{:+f}|{: f}|{:010f}|{:<6}|{:.3}'.format(i, i, i, i, i, i, i, i, i, i, i, i) }}|{{ '{:f}|{:G}|{:010}'.format(-i, -i, -i) }}|{{ '%f|%e|%g|%F|%05f|%+f|%r|%s' % (i, i, -i, i, i, i, i, i) }}|{{ i }}{{ -i }}{{ i - i }}
{% set x = (huge|float) - (huge|float) %}{{ '{:f}|{:E}|{:010f}|{:+}|{: }'.format(x, x, x, x, x) }}|{{ '%f|%E|%05f|% f' % (x, x, x, x) }}|{{ x == x }}|{{ x < 1 }}|{{ [x]|max }}|{{ x|round(2) }}
{% set i = huge|float %}{{ i|round(2) }}|{{ (-i)|round(-2) }}|{{ i // 2 }}|{{ 2 // i }}|{{ -2 // i }}|{{ 2 % i }}|{{ -2 % i }}|{{ i % 2 }}|{{ i ** 0 }}|{{ 0 * i }}|{{ i in [i] }}|{{ [i, -i, 0 * i]|tojson }}
{{ '%d' % (huge|float) }}
{{ (huge|float)|round }}
{{ range(huge|float) }}
{{ '{:#g}|{:#.0f}|{:#.0e}|{:#.3g}|{:#x}|{:#b}|{:#o}|{:#.1g}'.format(1.0, 2.0, 3.0, 1e10, 255, 5, 8, 1e-7) }}|{{ '%#g|%#.0f|%#.0e|%#x|%#o' % (1.0, 2.0, 3.0, 255, 8) }}
{{ '{}|{:.3}|{:.3}|{:.1}|{:.17}|{:.2}|{:.5}'.format(1e16, 123456.0, 1e-5, 9.96, 0.1, 1e22, 12345.0) }}
{{ '{:.1e}|{:.0e}|{:.2e}|{:.0e}|{:.1g}|{:.2g}|{:.3g}|{:.0f}|{:.0f}|{:.1f}'.format(9.96, 9.5, 99999, 0.95, 9.96, 99.9, 999.9, 0.5, 1.5, 0.25) }}
{{ '%.400f' % 1 }}
{{ '%f' % (10 ** 400) }}
{{ (10 ** 400) / 2.5 }}
{{ 10 ** 400 / 10 ** 399 }}|{{ 10 ** 400 / -(10 ** 398) }}
{{ 10 ** 800 / 10 ** 2 }}
{{ 1.5 / 0 }}
{{ 1.5 // 0 }}
{{ 1 // 0.0 }}
{{ 1 // 0.1 }}|{{ -1 // 0.1 }}|{{ 0.0 // 3 }}|{{ 0.0 // -3 }}|{{ -0.0 // 3 }}|{{ 0.5 // 3 }}|{{ -0.5 // 3 }}|{{ 0.5 // -3 }}|{{ 1e17 // 3 }}|{{ 1e300 // 0.7 }}|{{ 6.3 // 2.1 }}|{{ 4.5 // 1.5 }}|{{ -7.5 // -2 }}
{{ 6.0 % 3 }}|{{ -6.0 % 3 }}|{{ 6.0 % -3 }}|{{ -0.0 % 3 }}|{{ 7.5 % -2.5 }}
{{ 10.0 ** 400 }}
{{ 0.0 ** -1 }}
{{ 'a' * 10 ** 30 }}
{{ 'a' * -10 ** 30 }}|x
{{ l * -1 }}|{{ l * 0 }}|{{ 2 * l }}|{{ true * l }}
{{ d * 2 }}
{{ 1 <= 1 }}|{{ 1 <= 2 }}|{{ 2 <= 1 }}|{{ 1 >= 1 }}|{{ 1 >= 2 }}|{{ 2 >= 1 }}|{{ 'a' <= 'a' }}|{{ 'b' >= 'a' }}|{{ [1] <= [1, 2] }}|{{ (1, 2) >= (1, 2) }}|{{ 1.5 <= 1 }}|{{ 1 <= 1.0 >= 1 }}
{{ 1 <= 'a' }}
{{ none >= 1 }}
{% block a required %}{% endblock %}
{% block a required %} {% endblock %}
{% block a required %}x{% endblock %}
{% for a, b in [missing] %}{{ a }}{% endfor %}
{% set a, b = missing %}
{{ 5() }}
{{ 'a'() }}
{{ l() }}
{{ none() }}
{{ dict(**l) }}
{{ dict(**{1: 2}) }}
{{ dict(a=1, **{'a': 2}) }}
{{ dict(a=1, a=2) }}
{{ dict(1, 2) }}
{{ dict([[1, 2, 3]]) }}
{{ dict([(1, 2), ('a', 3)], b=4) }}|{{ dict({'a': 1}, a=2) }}|{{ dict(d, **{'z': 1}) }}
{% macro m(a, a) %}{% endmacro %}
{% macro m(caller) %}{% endmacro %}
{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}
{% macro m(a, b=1) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m.name }}|{{ m.arguments }}|{{ m.catch_kwargs }}|{{ m.catch_varargs }}|{{ m.caller }}|{{ m.nope is defined }}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m.caller }}|{{ m.catch_kwargs }}|{{ m.catch_varargs }}
{% set c = cycler('a', 'b') %}{{ c.pos }}{{ c.next() }}{{ c.pos }}{{ c.next() }}{{ c.pos }}|{{ c.items }}|{{ c.nope is defined }}|{{ c.current }}
{% set j = joiner('-') %}{{ j.used }}{{ j.sep }}{{ j() }}{{ j.used }}{{ j() }}|{{ j.nope is defined }}
{{ '<b>a</b> c'|safe }}|{{ ('<b>a</b>  c'|safe).striptags() }}|{{ 'a'.striptags is defined }}
{{ '{a}'.format_map(l) }}
{{ '{a}'.format_map({'a': 1}) }}|{{ '{a[b]}'.format_map({'a': {'b': 2}}) }}
{{ 'a'.center('x') }}
{{ 'a'.zfill(1.5) }}
{{ 'aXbX'.count('X', 5) }}|{{ 'aXbX'.count('X', 1, 3) }}|{{ 'aXbX'.count('', 9) }}|{{ 'aXbX'.count('', 4) }}|{{ 'aXbX'.count('X', -1) }}|{{ 'aXbX'.find('', 9) }}|{{ 'aXbX'.find('', 4) }}|{{ 'aXbX'.startswith('', 9) }}|{{ 'aXbX'.endswith('', 5) }}
{{ 'a-b-c'.partition('-') }}|{{ 'a-b-c'.rpartition('-') }}|{{ 'abc'.partition('-') }}|{{ 'abc'.rpartition('-') }}
{{ 'abc'.partition('') }}
{{ 'abc'.rpartition('') }}
{{ 'abc'.translate(none) }}
{{ 'abc'.translate({97: 'x', 98: none, 99: 100}) }}
{{ l.copy() }}|{{ (1, 2).copy is defined }}|{{ d.copy() }}|{{ 'a'.copy is defined }}
{{ n.real }}|{{ n.imag }}|{{ n.numerator }}|{{ n.denominator }}|{{ n.conjugate() }}|{{ n.bit_length() }}|{{ (-8).bit_length() }}|{{ (0).bit_length() }}|{{ f.real }}|{{ f.imag }}|{{ f.conjugate() }}|{{ f.is_integer() }}|{{ 2.0.is_integer() }}|{{ true.real }}|{{ true.imag }}|{{ true.denominator }}|{{ true.numerator }}
{{ 'one two three four'|wordwrap(0) }}
{{ 'well-known-words-are-long and self-evident'|wordwrap(10) }}|{{ '--------------------a'|wordwrap(6) }}|{{ 'abcdefghij-klmno'|wordwrap(5, break_long_words=false) }}|{{ 'abcdefghij-klmno'|wordwrap(5, break_on_hyphens=false) }}|{{ 'abcd-efghij-klmno'|wordwrap(6) }}|{{ 'a\nb c d\n\ne'|wordwrap(3) }}|{{ 'a b c d'|wordwrap(3, wrapstring='-') }}
{{ ('word ' * 40)|pprint }}
{{ ['word ' * 40, 'x']|pprint }}
{{ {'key': 'some words ' * 20, 'k': ['and more words ' * 8]}|pprint }}
{{ 'line one\nline two is rather long and goes on for a while, beyond the width of a page\nthree'|pprint }}
{{ [('x' * 90), 'y' * 79, 'z' * 70]|pprint }}
{{ ['short\nlines\nof\ntext', 'a ' * 39, 'b ' * 38]|pprint }}
{{ {'b': (3, 1), 'a': [{'d': 1, 'c': ('x ' * 50,)}]}|pprint }}
{{ {1: 'a', 'b': 2, none: 3}|pprint }}
{{ range(60)|list|pprint }}
{{ (1, (2, {'z': 1, 'a': 2}))|tojson }}|{{ [({'z': 1, 'a': 2},)]|pprint }}
{{ 'see https://a.example/x_(y) and (http://b.example/z), <http://c.example>.'|urlize }}|{{ '(www.example.com/a(b)c)'|urlize }}|{{ 'www.example.com/a(b))'|urlize }}|{{ 'mail me@a.example now'|urlize }}|{{ 'http://a.example/(x)).'|urlize }}
{{ 'ftp://a.example tel:123'|urlize(extra_schemes=['ftp://', 'tel:']) }}|{{ 'ftp://a.example'|urlize }}
{{ 'www.example.com'|urlize(15) }}|{{ 'www.example.com'|urlize(14) }}
{{ 'a'|urlize(extra_schemes=['x']) }}
{{ 'a'|urlize(extra_schemes=[1]) }}
{{ d.values() == d.values() }}|{{ d.keys() == d.keys() }}|{{ d.keys() == {'b': 5, 'a': 6, 'c': 7}.keys() }}|{{ d.items() == d.items() }}|{{ d.keys() == d.items() }}|{{ d.keys() == ['b', 'a', 'c'] }}
{{ [1, 2] == [1] }}|{{ (1,) == (1, 2) }}|{{ {'a': 1} == {'a': 1, 'b': 2} }}|{{ {'a': 1} == {'b': 1} }}|{{ {'a': 1} == {'a': 2} }}
{{ {(1, [2]): 3} }}
{{ {(1, {}): 3} }}
{{ 'abc'|replace('a', old='b') }}
{{ 'abc'|replace('a', 'b', new='c') }}
{{ range(1, 2, 3, 4) }}
{{ range() }}
{{ range('a') }}
{{ range(1.5) }}
{{ range(10, 0, -3)|list }}|{{ range(0)|list }}|{{ range(5, 5)|list }}|{{ range(2, 9, 3)[-1] }}|{{ range(2, 9, 3)[0] }}|{{ range(9)[9] is defined }}|{{ range(9)[-10] is defined }}
{{ ('ab'|safe)[1] is escaped }}|{{ ('ab'|safe)[2] is defined }}|{{ ('ab'|safe)[-3] is defined }}|{{ ('ab'|safe)[:1] is escaped }}
{% macro m(caller) %}{{ caller }}{% endmacro %}
{% macro m(a, caller) %}{{ caller }}{% endmacro %}
{% macro m(a, caller=1) %}{{ caller }}{{ a }}{% endmacro %}{{ m(2) }}{{ m(2, 3) }}
{% macro m(a, caller=1) %}{{ a }}{% endmacro %}{{ m(2, caller=3) }}
{{ d.copy(1) }}
{{ d.keys(1) }}
{{ d.items(none) }}
{{ l.copy(1) }}
{{ 'aa'|replace('a', 'b', 0) }}|{{ 'aa'|replace('a', 'b', none) }}|{{ 'aa'|replace('a', 'b', 1) }}
{{ ('9' * 4300)|int is odd }}|{{ ('9' * 4301)|int(5) }}|{{ ('%.2000f' % 1)|length }}
{{ 'a.com <'|urlize|e }}|{{ ('<'|safe)|reverse|e }}|{{ '<'|reverse|e }}|{{ ('<\n>'|safe)|indent|e }}|{{ '<'|safe|last|e }}|{{ '<'|last|e }}|{{ '<'[0]|e }}|{{ '<'[:1]|e }}|{{ '<'|first|e }}
{{ ('{}'|safe).format('<'|safe) }}|{{ ('{}'|safe).format('<') }}|{{ '{!a}{!s}{!r}'.format('é', 'é', 'é') }}|{{ '{:>6}|{:+}'.format(true, true) }}
{% autoescape true %}{% block a %}<{% endblock %}{{ self.a() }}{% endautoescape %}{{ self.a() }}
{% macro m(x) %}<{{ x }}>{% endmacro %}{% autoescape true %}{{ m('<') }}{% macro k(x) %}<{{ x }}>{% endmacro %}{{ k('<') }}{% endautoescape %}{{ m('<') }}
{% for x in [[1], []] %}{{ loop(x) }}{% endfor %}
{% for x in l %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}ok
{{ 0.5|round(-400) }}|{{ 0.0|round(-400) }}|{{ -0.5|round(-400) }}
{{ 'ΑΣ'.title() }}|{{ 'ΑΣ'.capitalize() }}|{{ 'ΑΣ'.casefold() }}|{{ 'ΑΣ'.istitle() }}|{{ 'Ας ªB'.istitle() }}
{{ (2**53 + 1) / 7 }}|{{ (2**70 + 1) / (2**20) }}|{{ 1 / (2**1060 + 1) }}|{{ (2**1100 + 1) / 3**600 }}|{{ -(10**400) / (10**399 + 7) }}|{{ 1 / 2**1100 }}
{% autoescape true %}{% set y | e %}<{% endset %}{{ y }}{% filter e %}<{% endfilter %}{% endautoescape %}
{{ '&nope;&amp;&#0;&#x110000;&#65;'|striptags }}
{% set j = joiner() %}{{ j(1) }}
{{ dict({}, {}) }}
{{ 0.5 % 2 }}|{{ -0.5 % -2 }}|{{ 5 % 0.75 }}|{{ (-1.0) ** 3 }}|{{ (-1) ** 3.0 }}|{{ 1.0 ** 3 }}
{% include 'x'
{{ 1 not 2 l }}
{{ l.index(3, -9) }}|{{ l.index(1, 0, -1) }}|{{ (4, 5).index(4, -1) is defined }}
{{ l[1, 0:1] }}
{{ range(*[1], 2) }}
{{ range(*[1], b=2) }}
{{ d.'b' }}
{{ d.1.5 }}
{{ d.[1] }}
{{ no and s|nope }}
{{ yes or n is nope }}
{% macro m() %}{{ 1|nope }}{% endmacro %}
{% if 0 %}{% set x %}{{ 1|nope }}{% endset %}{% endif %}
{{ 3 is eq l.0 }}|{{ {'a': 1, 'b': 2}.keys() == {'a': 1, 'c': 2}.keys() }}|{{ '\uffee' < '😀' }}|{{ '😀' > '\uffee' }}|{{ (10**4300 - 1)|string|length }}|{{ -(10**4300 - 1)|string|length }}
{{ 10**4300 }}
{{ -10**4300 }}
{{ ('word ' * 40)|safe|pprint }}|{{ {'k' * 80: ''}|pprint }}
{{ ('a'|safe).ljust(3, '<') }}
{{ ('a'|safe).rjust(3, '<') }}
{{ ('a'|safe).center(4, '<') }}
{{ '😀'.rstrip('😀') }}|{{ 'a😀'.rstrip('😀') }}|{{ 'abcc'.count('c', none, 3) }}|{{ 'abc'.find('c', none, 2) }}|{{ 'abc'.endswith('b', none, 2) }}|{{ 'a\tb'.expandtabs(0) }}|{{ 'a\tb'.expandtabs(-1) }}
""".strip("\n").split("\n")

# Templates of several lines: white space, line ends and control of both.
LAYOUTS = [
    "a\nb\n", "a\n\n", "\n", "\n\na", "a\r\nb\rc\n", "a\r\n{% if true %}\r\nb\r\n{% endif %}\r\nc",
    "  {% if true %}\n  a\n  {% endif %}\nb", "{% if true %}\n\na{% endif %}", "x {% if true %}\ny\n{% endif %} z",
    "  {{ 1 }}\n  {{ 2 }}\n", "  {{- 1 }}\n\n  {{- 2 -}}  \n\n  x", "a\n  {#- c -#}\n  b", "a\n  {# c #}\nb", "  {# c #}  \nb",
    "  {#+ c +#}\nb", "a\n  {%+ if true %}\nb{% endif %}", "{% if true +%}\na{% endif %}", "\t {% if true %}a{% endif %}",
    "{% for x in [1, 2] %}\n  {{ x }}\n{% endfor %}\n", "{%- for x in [1, 2] -%}\n  {{ x }}\n{%- endfor -%}\n",
    "{% for x in [1, 2] %}\n  {% if x == 1 %}\n    one\n  {% else %}\n    two\n  {% endif %}\n{% endfor %}",
    "{% raw %}\n  {{ a }}\n{% endraw %}\nb", "a\n  {% raw %}\n  x\n  {% endraw %}\nb", "{%- raw -%}\n x \n{%- endraw -%}\n y", "{% raw +%}x{% endraw +%}\ny",
    "{% set x = 1 %}\n{% set y = 2 %}\n\n{{ x }}{{ y }}\n", "{%- set x = 1 -%}\n{{ x }}", "{% macro m() %}\n a\n{% endmacro %}\n[{{ m() }}]",
    "a {%- if true %} b{%- endif %} c", "a{{ '\n' }}b", "{{ 'a\\\nb' }}", "{{ 'a\nb' }}", "{{ 'a\r\nb' }}", "{{\n1\n+\n1\n}}", "{%\nif true\n%}a{%\nendif\n%}",
    "a\u00a0{%- if true %}b{% endif %}", "a\u2028  {% if true %}b{% endif %}", "\x0b{% if true %}b{% endif %}", "\u00a0{% if true %}b{% endif %}",
    "{{ 1 }}\n", "{{ 1 }}\n\n", "{% if true %}a{% endif %}\n", "{% if true %}a{% endif %}\n\nb", "{# a #}\n", "{# a\nb #}\nc", "{#a#}{#b#}c", "{#-#}x", "{##}x", "{# a -#}\n  b",
    "a {#- b #} c", "   {%- if true %}a{% endif %}", "a   {%- if true -%}   b   {%- endif -%}   c", "a\n   {%- if true -%}\n   b\n   {%- endif -%}\n   c",
    "{% if true %}  {% if true %}  a  {% endif %}  {% endif %}", "{% if true %}\n  {% if true %}\n  a\n  {% endif %}\n{% endif %}\n", "a{% if true %}\n{% endif %}b",
    "{{ 1 -}}\n{{ 2 }}", "{{ 1 }}\n{{- 2 }}", "{{ 1 }} \n {{- 2 }}", "{{ 1 -}} \n {{ 2 }}", "é\n{{ 'é' }}\n日本\n", "😀{% if true %}😀{% endif %}😀\n",
    "{% filter upper %}\na\n{% endfilter %}\nb", "{% call(x) m() %}\n{% endcall %}", "{% generation %}\na\n{% endgeneration %}\nb", "{% if true %}\r\na\r\n{% endif %}\r\n", "a\rb\r", "{%- if true %}\r\n\r\na{% endif %}",
    "{% set x %}\n a\n{% endset %}\n[{{ x }}]", "{% with a=1 %}\n{{ a }}\n{% endwith %}\n", "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}\n",
]


def expect(source):
    """Returns what Jinja prints; None if it raises an error."""
    try:
        template = _compile_jinja_template(source)
        return template.render(tools=None, documents=None, add_generation_prompt=True,
                               bos_token="<s>", eos_token="</s>", **json.loads(json.dumps(VARIABLES)))
    except Exception as error:
        if "--errors" in sys.argv:
            print(source, "->", type(error).__name__, error, file=sys.stderr)
        return None


def split(line):
    """Splits a line at bars if each part is a valid template, or if the line fails as a whole."""
    if expect(line) is None:
        parts = re.split(r"(?<=[%}]\})\|(?=\{[{%])", line)
        return [line, *parts] if len(parts) > 1 else [line]
    if line.startswith("{%") or "{% set" in line or line.startswith("a "):
        return [line]
    parts = line.split("}}|{{")
    if len(parts) == 1:
        return [line]
    opened = [part if index == 0 else "{{" + part for index, part in enumerate(parts)]
    return [part if index == len(parts) - 1 else part + "}}" for index, part in enumerate(opened)]


# Products: templates made of every combination of some values, operations and arguments. The JSON has
# one hash of all texts of a group; `--group NAME` prints them.
VALUES = ["1", "0", "-3", "2.5", "true", "none", "missing", "'a'", "'ab c'", "[]", "[2, 1]", "(1,)", "{'a': 1}",
          "range(2)", "users", "'<'|safe"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
ARGUMENTS = ["", "('a')", "(1)", "(2, 3)", "(none)", "(attribute='a')", "(true)", "('x', 'y')"]
TEXTS = ["s", "u", "''", "' a b '", "'<'|safe", "'12'", "'a\\nb'", "'Ab-cD'"]
GIVEN = ["", "'a'", "1", "3, '-'", "'a', 'b'", "none, 1", "'a', 1", "' ', 1, 2", "['x', 'y']", "{97: 'x'}", "('a', 'H')"]
BOUNDS = ["", "0", "1", "-1", "-9", "9"]
UNORDERED = ["random"]
# Arguments of a wrong type that Python happens not to use, and complex numbers: forge rejects them.
CARELESS = re.compile(r"\|batch\(('|none)|\|int\('x', 'y'\)|\|round\(none\)|\.translate\((?!\{)|"
                      r"\(''\)\.(starts|ends)with\(none, 1\)|\(-3\) \*\* \(2\.5\)|"
                      r"\|int\('a', '<'\)|\|(int|tojson)\('a'\|safe|(1|'x') \[ \] }")


def products():
    """Yields names of groups, patterns and the lists whose values replace each %."""
    from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS
    for operator in OPERATORS:
        yield operator, "{{ (§) %s (§) }}" % operator, [VALUES, VALUES]
    for name in DEFAULT_FILTERS:
        if name not in UNORDERED:
            yield "|" + name, "{{ (§)|%s§§ }}" % name, [VALUES, ARGUMENTS, ["", "|list"]]
    for name in DEFAULT_TESTS:
        if name.isalpha():
            yield "is " + name, "{{ (§) is %s§ }}" % name, [VALUES, ["", "(1)", "('a')", "([2, 1, 'a'])", "(none)"]]
    for name in dir(str):
        if not name.startswith("_") and name not in ("encode", "maketrans", "format_map"):
            yield "." + name, "{{ (§).%s(§) }}" % name, [TEXTS, GIVEN]
    for value in ["u", "l", "(1, 2, 3)", "range(7)", "'ab'|safe"]:
        yield "slice " + value, "{{ (%s)[§:§:§] }}" % value, [BOUNDS, BOUNDS, ["", "2", "-1", "-2"]]
    numbers = ["42", "-7", "3.14159", "'abc'", "true"]
    for kind in ["", *"dfeg%xbscGn"]:
        lists = [["", "<", "*^", "="], ["", "+"], ["", "#"], ["", "08"], ["", ",", "_"], ["", ".3"], [kind], numbers]
        yield "format " + kind, "{{ '{:§§§§§§§}'.format(§) }}", lists
    others = ["42", "-7", "3.14159", "'abc'", "0.00001234", "1e20", "none"]
    for kind in "dioxXeEfgGcrsa":
        yield "%" + kind, "{{ '%%§§§%s' %% (§) }}" % kind, [["", "-", "0", "+", " ", "#"], ["", "8"], ["", ".0", ".3"], others]
    yield from more_products([name for name in DEFAULT_FILTERS if name not in UNORDERED])


def more_products(filters):
    """Groups of other constructs: syntax, numbers, and filters with several arguments."""
    operand = ["1", "-2", "not 2"]
    operators = [*OPERATORS, "if", "if 0 else", "is eq", "is not eq", "is in [2] and", "|default", ","]
    yield "precedence", "{{ § § 3 § 2 }}", [operand, operators, operators]
    tokens = "1 a 'x' - ( ) [ ] , : . | is not in if".split()
    words = "in and or if is not + ~ == | ( ) , . [ = *".split()
    yield "quoted", "{{ §'§'§ }}", [["", "1 ", "not ", "[1, ", "range("], words, ["", " 1", "]", " defined", " odd", " 1)"]]
    yield "tokens", "{{ § § § }}", [tokens, tokens, tokens]
    heads = ["if 1", "if", "if 0:", "for x in l", "for x in l if x > 1", "for x in tree recursive", "for a, x in [l]", "set x",
             "set x = 1", "set x | upper", "macro m(a)", "macro m(a, b=1)", "call m()", "call(a) s.upper()", "filter upper",
             "filter upper | lower", "with", "with x = 1", "with x = 1, y = x", "autoescape true", "generation",
             "block b", "block b scoped", "block b required", "raw", "print x, 1", "print", "break", "nope", "else"]
    middles = ["", "{% else %}e", "{% elif 1 %}f", "{% break %}", "{% continue %}g", "{% set loop = 1 %}", "{{ 1 }"]
    ends = ["if", "for", "set", "macro", "call", "filter", "with", "autoescape", "generation", "block", "block b", "raw", ""]
    yield "tags", "{% § %}x{{ x }}§{% end§ %}|{{ x }}", [heads, middles, ends]
    sources = ["l", "'ab'", "range(3)", "d", "(1, 2)", "users|map(attribute='name')", "[]"]
    attributes = "index index0 revindex revindex0 first last length previtem nextitem depth cycle(1,2)".split()
    yield "loop", "{% for x in §§ %}{{ loop.§ }}{{ loop.§ }},{% else %}none{% endfor %}", [sources, ["", " if x != 1"], attributes, attributes]
    signatures = ["", "a", "a, b=2", "a=1, b=a", "caller=1", "a, caller=none"]
    bodies = ["{{ a }}{{ b }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller }}", "{{ caller() }}{{ varargs }}", "{{ a }}{{ varargs }}{{ kwargs }}"]
    calls = ["{{ m() }}", "{{ m(1) }}", "{{ m(1, 2) }}", "{{ m(1, 2, 3) }}", "{{ m(b=3) }}", "{{ m(a=3, c=4) }}", "{{ m(1, a=2) }}",
             "{% call m(1) %}x{% endcall %}", "{% call(y) m() %}{{ y }}{% endcall %}", "{{ m(*l) }}", "{{ m(**d) }}", "{{ m(caller=5) }}",
             "{{ m(0, *l, b=1) }}", "{{ m(a=1, **d) }}", "{{ m.name }}{{ m.arguments }}{{ m.caller }}{{ m.catch_kwargs }}{{ m.catch_varargs }}"]
    yield "macro", "{% macro m(§) %}§{% endmacro %}§", [signatures, bodies, calls]
    signs, before, after = ["", "-", "+"], ["", "a", "a ", "a\n  ", "\n", " "], ["", " ", "\n", "\n\n b", "  \nb"]
    for open, close, inside in [("{%", "%}", " if true "), ("{{", "}}", " 1 "), ("{#", "#}", " c "), ("{#", "#}", "")]:
        mark = "%s§%s§%s" % (open, inside, close)
        end = "{% endif %}" if "if" in inside else ""
        yield "layout " + open + inside, "§" + mark + "§" + end, [before, signs, signs, after]
        yield "layout 2 " + open + inside, "\n" + mark + "§" + mark + "§" + end + end, [signs, signs, ["", " ", "\n", " \n "], signs, signs, after[1:3]]
    yield "raw", "§{%§ raw §%}§{{ x }}§{%§ endraw §%}§", [["a ", "\n "], signs, signs, ["", "\n "], ["", " ", "\n "], signs, signs, ["", " \n", "\nb"]]
    escapes = ["\\\\", "\\n", "\\x4", "\\x41", "\\u00e9", "\\101", "\\8", "\\'", "\\U0001F600", "\\\n", "a", "1", '"', "\\0", "\\07", "\\q", "\\r", "\\t\\v\\f\\a\\b"]
    yield "escapes", "{{ ['§§'] }}", [escapes, escapes]
    yield "numbers", "{{ §§§ }}", [["0", "1", "00", "0x", "0xf", "0b1", "0o7", "1_0", "_1", "1__0", "12"], ["", ".", ".5", "._5", ".5_0", "_"],
                                   ["", "e5", "E-2", "e+1_0", "e", "j"]]
    floats = ["0.0", "-0.0", "1.0", "9.5", "-99.95", "0.00012345", "1e-5", "123456.789", "1e16", "1.5e300", "5e-324", "0.1", "2.5", "1e22",
              "123456789012345680.0", "-1234.5", "999999.5", "0.999"]
    yield "widths", "{{ '{:§§§}'.format(§) }}", [["", "<", "*>", "^", "0=", "}"], ["", "6", "06", "+7", " 4", "-5", "#9", "1_", "9,"], ["", *"dxbfes"],
                                            ["3", "-3", "2.5", "-0.5", "true", "'é😀'", "1234567"]]
    yield "floats", "{{ '{:§§}'.format(§) }}", [["", ".0", ".1", ".2", ".3", ".5", ".10", ".17", ",.2", "#.3"], ["", *"efgG%n"], floats]
    yield "float text", "{{ § }}|{{ [§] }}", [floats, floats]
    yield "round", "{{ (§)|round(§§) }}", [[*floats, "15", "25", "-25", "true", "5", "-2.675"], ["0", "1", "2", "-1", "-2", "5"], ["", ", 'ceil'", ", 'floor'"]]
    large = ["10**20", "-10**20", "2**63", "2**53+1", "7", "-7", "0", "1.5", "-0.0", "1e308", "true", "9007199254740992.0"]
    yield "large", "{{ (§) § (§) }}", [large, [o for o in OPERATORS if o not in ("**", "and", "or", "~", "in", "not in")], large]
    texts = ["s", "'foo bar baz qux'", "u", "''", "'abcdefghijkl'", "'a\\nb c'|safe", "[1, 2, 3, 4]"]
    yield "truncate", "{{ (§)|truncate(§, §, §, §) }}", [texts, ["0", "3", "5", "9", "11"], ["true", "false"], ["'...'", "''", "'😀'"], ["0", "2", "none"]]
    texts = ["lines", "'a-b c--d e-f-g'", "'well-known-words are long'", "'  lead  and trail  '", "'-- a --b c-- -d'", "'aé-éb-😀-c x'",
             "'abcdefgh-ijkl-mnop q'", "'x--y z---w'", "'\\tt\\x85u'", "'a1-2b 3-4'"]
    yield "wordwrap", "{{ (§)|wordwrap(§, §, §, §) }}", [texts, ["1", "3", "5", "7", "10"], ["true", "false"], ["none", "'|'"], ["true", "false"]]
    yield "indent", "{{ (§)|indent(§, §, §) }}", [["lines", "''", "'\\n'", "'a\\n\\n'", "'a\\r\\nb\\x0bc'", "'<\\n>'|safe", "'a\\n \\nb'"], ["0", "1", "-1", "true", "'> '", "none"], ["true", "false"], ["true", "false"]]
    words = ["http://a.com", "https://a.b/c?d=(e)", "www.a.com", "www.x", "a.com", "a.org/x", "a.co", "a@b.cc", "mailto:a@b.cc", "x@y", "ftp://a.com", "tel:1",
             "http://1.2.3.4:80/x", "HTTP://A.COM", "a.com:12345", "a.com:123456", "a.com(b)", "((a.com)", "a.com.,"]
    given = ["", "(3)", "(none, true)", "(target='_b<')", "(rel='x y')", "(extra_schemes=['ftp://', 'tel:'])"]
    yield "urlize", "{{ '§§§'|urlize§ }}", [["", "(", "x <"], words, ["", ")", ". y", ">,"], given]
    values = ["d", "mixed", "users", "[]", "[[], {}]", "'é\\n<\\x7f'", "2.5", "{1: 2, none: 3, 2.5: 4, true: 5}", "(1, (2,))", "{'b': 1, 'a': [{'d': 1, 'c': 2}]}"]
    yield "tojson", "{{ (§)|tojson(indent=§, separators=§, sort_keys=§, ensure_ascii=§) }}", [values, ["none", "0", "2", "'-'", "-1"], ["none", "(',', ':')"], ["true", "false"], ["true", "false"]]
    values = ["html", "html|safe", "[html, html|safe]", "[1, html]", "{html: html}", "5", "none", "missing"]
    yield "autoescape |", "{% autoescape true %}{{ (§)|§§ }}{% endautoescape %}", [values, filters, ["", "('<')", "('a', '<')", "('<'|safe)", "('a'|safe, '<'|safe)"]]
    yield "autoescape", "{% autoescape true %}{{ (§) § (§) }}{% endautoescape %}", [values, ["+", "~", "*", "%", "==", "in"], [*values, "2", "('%s'|safe)"]]
    parts = ["'x' * 70", "'word ' * 18", "['a' * 30, 'b' * 30]", "{'k' * 20: 'v ' * 30, 'a': 1}", "('t' * 76,)", "1", "'a\\nb' * 20", "('p ' * 41, 2)", "'w ' * 37"]
    for pattern in ["[§, §]", "(§, §)", "{'key': §, 'b': §}", "{'key': [§], 1: (§,)}"]:
        yield "pprint " + pattern, "{{ (%s)|pprint }}" % pattern, [parts, parts]
    sizes = [[str(n) for n in range(58, 70)], ["0", "1", "2", "3"]]
    for pattern in ["[1, [2, ['a' * §, 'b' * §]]]", "{'k': [3, ('a' * §, 'b' * §)], 'l': 1}", "[{'k': {'a' * §: ['b' * §]}}, 1]"]:
        yield "pprint " + pattern, "{{ %s|pprint }}" % pattern, sizes
    yield "pprint", "{{ ('x' * §)|pprint }}{{ ['y ' * §, 1]|pprint }}", [[str(n) for n in range(75, 82)], [str(n) for n in range(36, 42)]]
    yield "sizes", "{{ (§)|filesizeformat§ }}", [["0", "1", "1.0", "999", "1000", "1023", "1024", "999999", "1e6", "1048575", "1048576", "1e9", "1e12", "1e15", "1e18", "1e21", "1e24", "1e27", "-5", "'1500'", "true", "999.9", "1.5"], ["", "(true)"]]
    yield "int", "{{ '§§§'|int(§) }}", [["", "-", "+", " ", "_"], ["0", "12", "0x1f", "0b11", "0o17", "1_0", "1__0", "zz", "0x", "1e3", "1.9"], ["", " ", "x", "_"], ["7", "7, 16", "7, 2", "7, 0", "7, 36", "7, 8"]]
    yield "float", "{{ '§§§'|float(7) }}", [["", "-", "+", " ", "_"], ["0", "12", "1_0", "1__0", ".5", "5.", ".", "1.5_5", "inf", "nan", "Infinity", "0x1"], ["", " ", "e3", "E-2", "e", "e1_0", "e+_1"]]
    values = ["users", "words", "[{'n': 'B'}, {'n': 'a'}, {'n': 'b', 'm': 1}]", "['B', 'a', 'b', 'A']", "[2, 1.0, 1]", "{'B': 1, 'a': 3, 'b': 2}", "[('b', 1), ('A', 2)]"]
    given = ["attribute='n'", "case_sensitive=true", "attribute='n', case_sensitive=true", "reverse=true", "attribute='name'", "attribute='m', default=0",
             "'n', 'x'", "attribute='n,name'", "by='value'", "attribute=0", "attribute='age', start=1", "'name', true", "true, 'value', true", "reverse=1, attribute='1'"]
    yield "orders", "{{ (§)|§(§)|list }}", [values, ["sort", "unique", "min", "max", "groupby", "sum", "map", "dictsort"], given]
    given = ["'odd'", "'gt', 1", "'name'", "'age', 'eq', 3", "'tags'", "'extra.k', 'defined'", "'in', [1, 2]", "'name', 'in', 'bob'", "'nope'", "'string'", "attribute='x'", "none"]
    yield "selection", "{{ (§)|§(§)|list }}", [["l", "users", "mixed", "words", "d"], ["select", "reject", "selectattr", "rejectattr"], given]
    keys = ["1", "1.0", "true", "'1'", "none", "(1,)", "(1.0,)", "'\\0'", "2**70", "missing", "'a'|safe", "'a'", "0", "false", "-0.0", "(1, 'a')", "[1]", "('1',)", "(1, ('a',))", "{}"]
    yield "keys", "{{ {§: 1, §: 2} }}", [keys, keys]
    yield "lookups", "{{ {§: 1}[§] }}", [keys, keys]
    yield "items", "{{ (§)[§] }}", [VALUES, ["0", "-1", "5", "'a'", "none", "1.0", "true", "missing", "(1,)", "[1]", "'__class__'", "'real'", "'x'", "-0"]]
    yield "attributes", "{{ (§).§ }}", [VALUES, ["real", "imag", "numerator", "denominator", "start", "stop", "step", "a", "0", "9", "append", "_x", "name", "text"]]
    letters = ["ß", "ǆ", "ǅ", "ﬁ", "İ", "ı", "ſ", "Σ", "ς", "é", "中", "٣", "²", "½", "Ⅷ", "ⓐ", "ª", "\u00ad", "\u200b", "\ue000", "😀", "a1", "A b", "\x1c", "\x85", "x_", "Ab Cd", "aB"]
    methods = [name for name in dir(str) if not name.startswith("_") and name not in ("encode", "maketrans", "format_map", "format")]
    yield "letters", "{{ '§'.§() }}", [letters, methods]
    yield "letters 2", "{{ 'x§y'.§() }}", [letters, methods]
    yield "letters |", "{{ ['§'|§] }}", [letters, ["upper", "lower", "title", "capitalize", "wordcount", "urlencode", "trim", "tojson(true)", "string", "wordwrap(1)"]]
    yield "quotes", "{{ ['§', \"§\"] }}|{{ '§'|tojson(true) }}", [["a", "\\'", '"', "\\n", "\x7f", "\u2028", "é", "\\\\"], ["a", "'", '\\"', "\\r\\t", "\\x00", "\U000e0001"], ["\x1f", "😀"]]


def expand(pattern, lists):
    for values in itertools.product(*lists):
        parts = pattern.split("§")
        yield parts[0] + "".join(value + part for value, part in zip(values, parts[1:]))


def printed(source, environment):
    """Returns what Jinja prints, or one of two marks: of an error, or of an address, which varies."""
    try:
        text = environment.from_string(source).render(
            tools=None, documents=None, add_generation_prompt=True, bos_token="<s>", eos_token="</s>",
            **json.loads(json.dumps(VARIABLES)))
    except Exception:
        return "\0error"
    return "\0address" if " at 0x" in text else text


def write_products(path):
    environment = _compile_jinja_template("").environment
    groups = []
    for name, pattern, lists in products():
        texts = [printed(source, environment) for source in expand(pattern, lists)]
        skipped = [index for index, source in enumerate(expand(pattern, lists))
                   if texts[index] == "\0address" or CARELESS.search(source)]
        kept = [text for index, text in enumerate(texts) if index not in skipped]
        if name in sys.argv:
            print(json.dumps(texts, indent=0))
        digest = hashlib.sha256("\0\0".join(kept).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        groups.append([name, pattern, lists, skipped, digest])
    if "--group" not in sys.argv:
        with open(path, "w") as file:
            lines = ",\n".join(json.dumps(group, ensure_ascii=False) for group in groups)
            variables = json.dumps(VARIABLES, ensure_ascii=False)
            file.write('{\n"variables": %s,\n"groups": [\n%s\n]\n}\n' % (variables, lines))


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    write_products(os.path.join(folder, "jinja_products.json"))
    if "--group" in sys.argv or "--products" in sys.argv:
        sys.exit()
    sources = [part for line in CONSTRUCTS for part in split(line)] + LAYOUTS
    entries = []
    for source in dict.fromkeys(sources):
        text = expect(source)
        # Python prints functions and generators with their addresses.
        if text is None or " at 0x" not in text:
            entries.append([source, text])
    with open(os.path.join(folder, "jinja_constructs.json"), "w") as file:
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        variables = json.dumps(VARIABLES, ensure_ascii=False)
        file.write('{\n"variables": %s,\n"constructs": [\n%s\n]\n}\n' % (variables, lines))
    print(len(entries), "constructs,", sum(text is None for _, text in entries), "of them errors")
