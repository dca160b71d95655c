"""Chat templates: the text that transformers renders, one bos, and nothing that a stranger's template could misuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from transpect.base.errors import TokenizerError
from transpect.text import Tokenizer, chat_template, encode_chat, render_chat, train_tokenizer

CHATML = """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
    {% if loop.index0 == 0 and system != false %}
{% set content = '<<SYS>>\n' ~ system ~ '\n<</SYS>>\n\n' ~ message['content'] %}
{% else %}{% set content = message['content'] %}{% endif %}
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}"""

TOOLS = """{%- if tools %}{%- for tool in tools %}{{ tool | tojson(indent=2) }}{% endfor %}{% endif -%}
{%- set ns = namespace(last=-1, seen=[]) -%}
{%- for m in messages[::-1] %}
  {%- if ns.last < 0 and m.role == "user" %}{% set ns.last = loop.index %}{% endif %}
{%- endfor -%}
{%- macro say(role, text) -%}<{{ role|upper }}>{{ text|trim }}</{{ role|upper }}>{%- endmacro -%}
{%- for m in messages -%}
  {%- if m.role == "system" %}{% continue %}{% endif -%}
  {%- if m.content is string -%}{{ say(m.role, m.content) }}
  {%- else -%}{% for part in m.content|selectattr("type", "equalto", "text") %}{{ say(m.role, part.text) }}{% endfor %}
  {%- endif -%}
  {%- if m.tool_calls is defined -%}{% for c in m.tool_calls %}
  {%- generation %}{{ c.arguments|tojson }}{% endgeneration %}
  {%- if not loop.last %}, {% endif %}{% endfor %}{%- endif -%}
  {%- if "</think>" in m.content -%}{{ m.content.split("</think>")[-1].lstrip("\n") }}{% break %}{%- endif -%}
{%- endfor -%}
{{ ns.last }}{{ messages|map(attribute="role")|join("/") }}{{ messages|length }}
{{ "%s-%02d"|replace("%","#") }}{{ "a" * 3 }}"""

TALKS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "你好 <b>&'\" hi "}],
    [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "小猫爱吃什么？"},
        {"role": "assistant", "content": "鱼"},
        {"role": "user", "content": " more\n"},
    ],
    [
        {"role": "user", "content": [{"type": "text", "text": " look "}, {"type": "image"}]},
        {
            "role": "assistant",
            "content": "<think>x</think>\n\nyes",
            "tool_calls": [{"arguments": {"b": 1, "a": "é<"}}, {"arguments": {}}],
        },
    ],
]
SCHEMA = [{"type": "function", "function": {"name": "look", "parameters": {"b": [1, 2.5, None, True], "a": "<é>"}}}]


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("tools", [None, SCHEMA])
@pytest.mark.parametrize(
    ("template", "talk"), [*((t, talk) for t in (CHATML, LLAMA2) for talk in TALKS[:2]), *((TOOLS, t) for t in TALKS)]
)
def test_templates_render_as_in_transformers(
    template: str, talk: list[dict[str, Any]], tools: list[dict[str, Any]] | None, prompt: bool, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = train_tokenizer("byte-bpe", ["hello"], 300)
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        talk, tools=tools, chat_template=template, tokenize=False, add_generation_prompt=prompt
    )
    ours = render_chat(
        template, talk, tools=tools, add_generation_prompt=prompt, special_tokens=tokenizer.special_tokens
    )
    assert ours == theirs
    assert ours


def test_variables_and_time() -> None:
    talk = TALKS[0]
    assert (
        render_chat("{{ thinking }} {{ strftime_now('%Y')|length }}", talk, variables={"thinking": False}) == "False 4"
    )
    assert render_chat("{{ nothing }}|{{ tools is none }}", talk) == "|True"


# bos


@pytest.mark.parametrize("kind", ["char", "bpe", "byte-bpe", "unigram"])
@pytest.mark.parametrize("prefix", ["{{ bos_token }}", ""])
def test_exactly_one_bos(kind: str, prefix: str) -> None:
    template = prefix + "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    trained = train_tokenizer(kind, ["小猫爱吃鱼"], 500)
    tokenizer = Tokenizer(trained.backend, trained.special_tokens, chat_templates={"default": template})
    ids = encode_chat(tokenizer, [{"role": "user", "content": "小猫"}])
    bos = tokenizer.bos_id
    assert ids.count(bos) == (0 if bos is None else 1)
    assert ids == tokenizer.encode(tokenizer.decode(ids))
    assert ids[-1] == tokenizer.eos_id
    assert ids[-2] != tokenizer.eos_id
    raw = tokenizer.encode("小猫", add_special_tokens=True)
    assert raw.count(bos) == (0 if bos is None else 1)


def test_no_bos_where_the_tokenizer_adds_none() -> None:
    trained = train_tokenizer("byte-bpe", ["hello"], 300, special_tokens={"bos": None})
    ids = encode_chat(trained, TALKS[0], template=CHATML)
    assert ids == trained.encode(render_chat(CHATML, TALKS[0], add_generation_prompt=True))


def test_templates_by_name() -> None:
    trained = train_tokenizer("byte-bpe", ["hello"], 300)
    tokenizer = Tokenizer(
        trained.backend, trained.special_tokens, chat_templates={"default": "{{ 1 }}", "rag": "{{ 2 }}"}
    )
    assert tokenizer.decode(encode_chat(tokenizer, TALKS[0], template="rag"), skip_special_tokens=True) == "2"
    assert chat_template(tokenizer) == "{{ 1 }}"
    with pytest.raises(TokenizerError, match="It has default, rag"):
        encode_chat(tokenizer, TALKS[0], template="tool_use")
    with pytest.raises(TokenizerError, match="It has none at all"):
        encode_chat(trained, TALKS[0])


# errors


@pytest.mark.parametrize(
    ("template", "rule"),
    [
        ("{% for %}", "not valid Jinja, line 1"),
        ("\n\n{{ x", "not valid Jinja, line 3"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].a.b }}", "'dict object' has no attribute 'a'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' + 1 }}", "can't render"),
        ("{{ [1]['x'].y }}", "can't render"),
        ("{% include 'other' %}", "can't render"),
        ("x" * 1_000_001, "at most 1000000 characters"),
    ],
)
def test_what_goes_wrong_in_a_template_is_said(template: str, rule: str) -> None:
    with pytest.raises(TokenizerError, match=rule):
        render_chat(template, TALKS[0])


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([], "non-empty list"),
        ("hello", "non-empty list"),
        ({"role": "user"}, "non-empty list"),
        (["hello"], "message 0 must have a role"),
        ([{"role": "user"}, {"content": "x"}], "message 1 must have a role"),
        ([{"role": "user", "content": object()}], "what JSON can hold"),
        ([{"role": "user", "content": {1, 2}}], "what JSON can hold"),
    ],
)
def test_what_is_no_chat_is_said(messages: Any, rule: str) -> None:
    with pytest.raises(TokenizerError, match=rule):
        render_chat(CHATML, messages)


# strangers

LAUGHS = "{% set ns = namespace(s=['lol']) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__ }}",
        "{{ messages|attr('__class__') }}",
        "{{ messages|map(attribute='__class__')|list|first|string }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ '{0.__class__}'.format_map({'0': 1}) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__wrapped__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__ }}",
        "{{ lipsum.__globals__ }}",
        "{% for k in messages.append({'role': 'x'}) %}{% endfor %}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].clear() }}",
        "{% import 'os' as os %}",
        "{{ namespace.__init__.__globals__['os'].system('true') }}",
    ],
)
def test_python_is_out_of_reach(template: str) -> None:
    talk = [{"role": "user", "content": "x"}]
    try:
        text = render_chat(template, talk)
    except TokenizerError:
        text = ""
    assert "class" not in text
    assert text in ("", "\n")
    assert talk == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% if range(99999)|list|sort|length %}{% endif %}{% endfor %}",
        "{% for a in range(99999) %}{% if range(99999)|map('string')|map('upper')|list %}{% endif %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
        "{% for a in [[[1]]] recursive %}{{ loop([[[1]]]) }}{% endfor %}",
        "{{ range(10**9) }}",
        "{{ 'a' * 10**10 }}",
        "{{ [0] * 10**10 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% set ns = namespace(s='a' * 1000) %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='a' * 1000) %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        LAUGHS + "{{ ns.s }}",
        LAUGHS + "{{ ns.s|tojson }}",
        LAUGHS + "{{ ns.s|string }}",
        LAUGHS.replace("[ns.s, ns.s]", "{1: ns.s, 2: ns.s}") + "{{ ns.s ~ 1 }}",
        "{% set ns = namespace(n=9) %}{% for a in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{% set l = range(99999)|list %}{% for a in range(9999) %}{% if 0.5 in l %}{% endif %}{% endfor %}",
        "{% set l = range(99999)|list %}{{ range(9999)|select('in', l)|list|length }}",
        "{% set s = 'a' * 10**6 %}{% for a in range(9999) %}{% if s[1:] %}{% endif %}{% endfor %}",
        "{% set s = 'a' * 10**6 %}{% for a in range(9999) %}{% if s == a ~ s %}{% endif %}{% endfor %}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ 'a'.zfill(10**10) }}",
        "{{ ('\t' * 10000).expandtabs(10**6) }}",
        "{{ ('a' * 10**6).replace('a', 'b' * 10**6)|length }}",
        "{{ ('a' * 10**6)|replace('a', 'b' * 10**6)|length }}",
        "{{ ('\n' * 10**6)|indent(10**6)|length }}",
        "{{ (['a' * 10**6] * 10**5)|join|length }}",
        "{{ ('b' * 10**6).join('a' * 10**6)|length }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10**10, 1) }}",
        "{{ '%(a)09999d' % {'a': 1} }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{w}}'.format(1, w=10**10) }}",
        "{{ strftime_now('%1000000000Y') }}",
        "{{ [1]|batch(10**10, 0)|list }}",
        "{{ 1.5|round(10**10, 'floor') }}",
        "{% for a in range(9000) %}{{ 'abcdefghij' * 1000 }}{% endfor %}",
    ],
)
def test_no_template_works_for_ever_or_fills_the_memory(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transpect.text.sandbox.BUDGET", 10_000_000)  # a tenth, to be done sooner
    with pytest.raises(
        TokenizerError, match=r"too much work|too long|too wide|too large|recursion|Range too big|is unsafe|No filter"
    ):
        render_chat(template, TALKS[0])


# What a template may have from the start, by the name that it has there.
AT_HAND = {
    "'a'.encode()": b"a",
    "'a'": "a",
    "('a'|safe)": Markup("a"),
    "1": 1,
    "true": True,
    "1.5": 1.5,
    "[1]": [1],
    "(1,)": (1,),
    "{'a': 1}": {"a": 1},
    "{'a': 1}.items()": {"a": 1}.items(),
    "range(3)": range(3),
    "dict": dict,
}
# Those that make no more than the sum of what they are given, which is what is paid for them.
HARMLESS = set(
    """
    capitalize casefold copy count endswith find format format_map get grouper index is_integer isalnum isalpha isascii
    isdecimal isdigit islower isnumeric isspace istitle isupper items join keys list lower lstrip partition
    removeprefix removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip swapcase
    title upper values
    """.split()  # noqa: SIM905
)


@pytest.mark.parametrize("name", AT_HAND)
def test_of_python_s_own_types_only_harmless_methods_are_at_hand(name: str) -> None:
    for attribute in set(dir(AT_HAND[name])) - HARMLESS:
        with pytest.raises(TokenizerError, match="is unsafe"):
            render_chat(f"{{{{ {name}.{attribute}() }}}}", TALKS[0])


MEGA = "{% set s = ('\u5c0f' * 10**6) %}"  # four megabytes, for a tenth of the tests' budget


@pytest.mark.parametrize(
    "template",
    [
        "{{ [1]|tojson(indent=10**7)|length }}",
        "{{ [[1]*9999]|tojson(indent=999)|length }}",
        MEGA + "{{ ([1] * 10**4)|tojson(separators=(s, ':'))|length }}",
        MEGA + "{{ ''.join([s] * 10**4)|length }}",
        MEGA + "{{ ([{'a': s}] * 10**4)|map(attribute='a')|join|length }}",
        MEGA + "{{ ''.join(([{'a': s}] * 10**4)|map(attribute='a'))|length }}",
        MEGA + "{{ ([s] * 10**4)|sort|length }}",
        MEGA + "{{ ([{'a': s}] * 10**4)|map(attribute='a')|sort|length }}",
        MEGA + "{% for a in range(9999) %}{% if ''.replace('', s) %}{% endif %}{% endfor %}",
        MEGA + "{% for a in range(9999) %}{% if s.count('b') %}{% endif %}{% endfor %}",
        MEGA + "{% for x in [1, s] %}{{ ('{0.previtem}' * 10**4).format(loop)|length }}{% endfor %}",
        "{{ ('ab ' * 10**6).split()|length }}",
        "{{ ('ab,' * 10**6).split(',')|length }}",
        "{{ ('ab\n' * 10**6).splitlines()|length }}",
        "{{ ('\u5c0f' * 10**6)|list|length }}",
        "{{ ('{0:>999}' * 10**6).format(1)|length }}",
        "{{ ('%(a)999d' * 10**6) % {'a': 1} }}",
        "{{ ([[0] * 1000] * 1000)|sum(start=[])|length }}",
        "{{ ('f' * 10**5)|int(0, 16) // 3 }}",
        "{{ 0x" + "f" * 4000 + " % 3 }}",
        "{{ 5|round(-10**8) }}",
        "{{ 5|round(-10**5) }}",
        "{{ strftime_now('%c' * 10**5)|length }}",
        "{% set l = range(9999)|list %}{% set ns = namespace(k=[]) %}"
        "{% for a in range(9999) %}{% set ns.k = [ns.k, namespace(dict(l|map('string')|zip))] %}{% endfor %}",
        "{% set d = dict.fromkeys(range(9999)) %}",
        "{{ (1).to_bytes(10**10, 'big') }}",
        "{% set d = namespace(d={}) %}{% for a in range(9999) %}{% set d.d = dict(d.d, **{a|string: 1}) %}{% endfor %}",
        "{% set ns = namespace(k=[]) %}{% for a in range(9999) %}{% set t %}" + "x" * 50_000 + "{% endset %}"
        "{% set ns.k = [ns.k, t] %}{% endfor %}",
        LAUGHS.replace("[ns.s, ns.s]", "namespace(a=ns.s, b=ns.s)") + "{{ ns.s }}",
        LAUGHS.replace("[ns.s, ns.s]", "{1: ns.s, 2: ns.s}.values()") + "{{ ns.s ~ 1 }}",
        LAUGHS.replace("[ns.s, ns.s]", "(ns.s, ns.s)").replace("['lol']", "('lol',)") + "{{ {ns.s: 1}|length }}",
    ],
)
def test_much_is_not_made_of_little(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transpect.text.sandbox.BUDGET", 10_000_000)
    with pytest.raises(
        TokenizerError,
        match=r"too much work|too long|too wide|too large|too far|recursion|is unsafe|No filter|no value|4300",
    ):
        render_chat(template, TALKS[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "use",
    [
        "{ns.s: 1}",
        "{1: 2}[ns.s]",
        "{1: 2}.get(ns.s)",
        "ns.s in {1: 2}",
        "ns.s is in {1: 2}",
        "dict([(ns.s, 1)])",
        "[ns.s]|unique|list",
        "[{}]|map(attribute=ns.s)|list",
    ],
)
def test_no_key_is_too_deep_to_hash(use: str) -> None:
    deeper = "(" * 20 + "ns.s" + ",)" * 20  # Python hashes a tuple in C, without counting how deep it gets
    template = f"{{% set ns = namespace(s=()) %}}{{% for a in range(9999) %}}{{% set ns.s = {deeper} %}}{{% endfor %}}"
    with pytest.raises(TokenizerError, match=r"recursion|too much work"):
        render_chat(template + f"{{{{ {use} }}}}", TALKS[0])


@pytest.mark.parametrize(
    ("use", "text"),
    [
        ("c.split('</think>')[-1].lstrip('\\n')", "yo "),  # Qwen 3
        ("c.startswith('<think>') and not c.endswith('x')", "True"),
        ("c.split('</think>')[0].rstrip('\\n').split('<think>')|last", "\nx"),
        ("messages[::-1]|length", "1"),
        ("(messages|selectattr('role', 'equalto', 'user')|list)[0]['role']", "user"),  # Mistral
        ("messages|map(attribute='role')|join(', ')|upper", "USER"),
        ("t.arguments|items|list", "[('a', 1)]"),  # Llama 3.1, MiniMax
        ("t.arguments.items()|list|tojson", '[["a", 1]]'),
        ("t.arguments.keys()|list", "['a']"),
        ("t.get('name', '')|string|trim", "f"),
        ("t|dictsort|first|first", "arguments"),  # Gemma 4
        ("['string', 'null']|map('upper')|list|tojson(ensure_ascii=False)", '["STRING", "NULL"]'),
        ("t|tojson(indent=4)|replace('\\n', '')|length", "55"),
        ("t|tojson(separators=(',', ':'), sort_keys=true)", '{"arguments":{"a":1},"name":"f"}'),
        ("'a-b'.replace('-', '_')|capitalize ~ 'x'.title() ~ 'Y'.lower() ~ 'z'.upper()", "A_bXyZ"),
        ("'%s: %d' % ('a', 3) ~ '{}={:>3}'.format('b', 4)", "a: 3b=  4"),
        ("(strftime_now('%Y')|int > 2000) ~ (messages|length - 1) ~ 7 // 2", "True03"),
        ("c.strip()|indent(2)|default('')|length > 3 and 'user' in messages[0].values()", "True"),
        ("messages|groupby('role')|map(attribute='grouper')|list", "['user']"),
        ("(messages|groupby('role')|first).list|length", "1"),
        ("[3, 1]|sort|list ~ [1, 1]|unique|list ~ [1, 2]|sum ~ [1, 2]|max ~ [2]|min", "[1, 3][1]322"),
        ("range(3)|reverse|list ~ [1, none]|select|list ~ [1, none]|reject('none')|list", "[2, 1, 0][1][1]"),
    ],
)
def test_what_published_templates_use_is_at_hand(use: str, text: str) -> None:
    names = "{% set c = messages[0].content %}{% set t = {'name': 'f', 'arguments': {'a': 1}} %}"
    talk = [{"role": "user", "content": "<think>\nx\n</think>\n\nyo "}]
    assert render_chat(names + f"{{{{ {use} }}}}", talk) == text


def test_formats_of_usual_width_work() -> None:
    template = "{{ '%05.1f|%s in 2024' % (2.5, 'x') }}{{ '{:>4}|{a} 2024'.format(1, a='y') }}{{ 7 % 4 }}"
    assert render_chat(template, TALKS[0]) == "002.5|x in 2024   1|y 20243"


def test_a_long_chat_is_within_the_limits() -> None:
    talk = [{"role": ("user", "assistant")[i % 2], "content": "小猫 " * 1000} for i in range(400)]
    for template in (CHATML, LLAMA2):
        assert len(render_chat(template, talk, special_tokens={"bos": "<s>", "eos": "</s>"})) > 1_000_000
    with pytest.raises(TokenizerError, match="too long"):
        render_chat(CHATML, talk, max_chars=1000)
