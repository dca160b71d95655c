"""What the assistant says in a conversation: the ids that a writer would see before it, its own words, its end."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transpect.base.errors import TokenizerError
from transpect.text import Tokenizer, encode_answers, encode_chat, render_chat, train_tokenizer

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MARKED_WORDS = MARKED.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>")
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}"
)
ENDLESS = (
    "{% for m in messages %}{{ '\n' + m.role + ':\n' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\nassistant:\n' }}{% endif %}"
)
FORGETS = (
    "{% for m in messages %}{{ m.role + '\n' }}{{ m.content.split('</think>')[-1] if not loop.last else m.content }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}{{ 'assistant\n' }}{% endif %}"
)
JOINS = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
TEMPLATES = {"chatml": CHATML, "marked": MARKED, "words alone": MARKED_WORDS, "llama 2": LLAMA2, "joins": JOINS}
ENDS = {"llama 2": "</s>"}
ROLES = {"bos": "<s>", "eos": "</s>", "pad": "</s>"}
TEXT = [
    "The cat likes fish.\n\n\nBirds sing",
    'assistant user system [INST] five tool| {}/:15"\n\n',
    "小猫爱吃鱼 hello birds y",
] * 3

WORDS = st.text("a猫 \n", min_size=1, max_size=6)
TALK = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3)


def tokenizer_of(kind: str) -> Tokenizer:
    trained = train_tokenizer(kind, TEXT, 400, extra_special_tokens=["<|im_start|>", "<|im_end|>"])
    return Tokenizer(trained.backend, {**trained.special_tokens, "pad": "</s>", "eos": "</s>", "bos": "<s>"})


KINDS = {kind: tokenizer_of(kind) for kind in ("char", "byte-bpe", "unigram")}


def talk_of(pairs: list[tuple[str, str]], system: str = "") -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for asked, answer in pairs:
        talk += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return talk


def runs(ids: list[int], learnt: list[bool]) -> list[list[int]]:
    found: list[list[int]] = []
    for at, own in enumerate(learnt):
        if own:
            if not at or not learnt[at - 1]:
                found.append([])
            found[-1].append(ids[at])
    return found


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", ["char", "byte-bpe"])
@settings(max_examples=5, deadline=None)
@given(pairs=TALK)
def test_answers_are_what_would_be_written(kind: str, template: str, last: bool, pairs: list[tuple[str, str]]) -> None:
    tokenizer, source = KINDS[kind], TEMPLATES[template]
    talk = talk_of(pairs)
    found = encode_answers(tokenizer, talk, template=source, last=last)
    assert len(found.ids) == len(found.learnt)
    # the text is the template's
    text = render_chat(source, talk, special_tokens=tokenizer.special_tokens)
    start = "<s>" if tokenizer.adds_bos and not text.startswith("<s>") else ""
    assert tokenizer.decode(found.ids) == start + text
    # the answers with their ends, each, and nothing else
    end = ENDS.get(template, "<|im_end|>")
    lead, tail = (" ", " ") if template == "llama 2" else ("", "")
    wanted = [f"{lead}{answer}{tail}{end}" for _, answer in (pairs[-1:] if last else pairs)]
    if template == "words alone":
        wanted = [one.removesuffix(end) for one in wanted]
    assert [tokenizer.decode(run) for run in runs(found.ids, found.learnt)] == wanted
    # what stands before the first of them is the prompt that a writer is given
    prompt = encode_chat(tokenizer, talk[:-1] if last else talk[:1], template=source)
    if not last or len(pairs) == 1:
        assert found.ids[: found.learnt.index(True)] == prompt


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_joins_the_ids_are_those_of_the_whole(kind: str) -> None:
    tokenizer = KINDS[kind]
    talk = talk_of([("the cat", "likes fish"), ("小猫", "爱吃鱼")], "Be kind")
    found = encode_answers(tokenizer, talk, template=CHATML)
    assert found.ids == encode_chat(tokenizer, talk, template=CHATML, add_generation_prompt=False)
    assert [tokenizer.decode(run) for run in runs(found.ids, found.learnt)] == [
        "likes fish<|im_end|>",
        "爱吃鱼<|im_end|>",
    ]


def test_a_token_never_reaches_from_prompt_to_answer() -> None:
    tokenizer = KINDS["byte-bpe"]
    talk = talk_of([("x", "\n\nfish")])
    assert tokenizer.decode(tokenizer.encode("\n\n\nfish")[:1]) == "\n\n"
    found = encode_answers(tokenizer, talk, template=CHATML)
    assert found.ids != encode_chat(tokenizer, talk, template=CHATML, add_generation_prompt=False)
    assert found.ids[: found.learnt.index(True)] == encode_chat(tokenizer, talk[:1], template=CHATML)
    assert tokenizer.decode(runs(found.ids, found.learnt)[0]) == "\n\nfish<|im_end|>"


def test_a_tokenizer_that_reads_parts_otherwise_is_refused() -> None:
    tokenizer = KINDS["unigram"]  # puts a space before every text that it reads
    with pytest.raises(TokenizerError, match="must be encoded apart"):
        encode_answers(
            tokenizer,
            talk_of([("ca", "t"), ("fi", "sh")]),
            template="{% for m in messages %}{{ m.content }}{% endfor %}",
        )


@pytest.mark.parametrize("kind", ["char", "byte-bpe"])
def test_an_answer_without_an_end_is_given_one(kind: str) -> None:
    tokenizer = KINDS[kind]
    found = encode_answers(tokenizer, talk_of([("x", "fish"), ("y", "birds")]), template=ENDLESS)
    assert [tokenizer.decode(run) for run in runs(found.ids, found.learnt)] == ["fish", "birds</s>"]
    assert found.ids[-1] == tokenizer.eos_id
    # and one that the template writes without marking it is learnt too
    template = MARKED_WORDS.replace("<|im_end|>", "</s>")
    found = encode_answers(tokenizer, talk_of([("x", "fish"), ("y", "birds")]), template=template)
    assert [tokenizer.decode(run) for run in runs(found.ids, found.learnt)] == ["fish</s>", "birds</s>"]


def test_what_follows_the_last_answer_is_left_out_and_a_greeting_is_context() -> None:
    tokenizer = KINDS["char"]
    talk = talk_of([("x", "fish")])
    more = [{"role": "assistant", "content": "hello"}, *talk, {"role": "user", "content": "and?"}]
    found = encode_answers(tokenizer, more, template=CHATML)
    assert [tokenizer.decode(run) for run in runs(found.ids, found.learnt)] == ["fish<|im_end|>"]
    assert "and?" not in tokenizer.decode(found.ids)
    assert "hello" in tokenizer.decode(found.ids)


@pytest.mark.parametrize("template", [MARKED, MARKED_WORDS])
def test_marks_are_those_of_transformers(template: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = KINDS["byte-bpe"]
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for pairs in ([("the cat", "likes fish")], [("小猫", "爱吃鱼 a"), ("x", "y"), ("fish", "The 猫")]):
        talk = talk_of(pairs, "Be kind")
        given = theirs.apply_chat_template(
            talk, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        found = encode_answers(tokenizer, talk, template=template)
        assert found.ids[1:] == given["input_ids"]  # before it the bos of the tokenizer
        assert list(map(int, found.learnt[1:])) == list(given["assistant_masks"])


def test_tools_and_calls() -> None:
    template = (
        "{% if tools %}{{ tools[0].name }}|{% endif %}{% for m in messages %}{{ m.role }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant\n{% endif %}"
    )
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    talk = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "5"},
        {"role": "assistant", "content": "five"},
    ]
    tokenizer = KINDS["char"]
    found = encode_answers(tokenizer, talk, template=template, tools=[{"name": "f"}])
    said = [tokenizer.decode(run) for run in runs(found.ids, found.learnt)]
    assert len(said) == 2 and said[1] == "five<|im_end|>"
    assert tokenizer.decode(found.ids).startswith("<s>f|user")


@pytest.mark.parametrize(
    ("template", "talk", "last", "rule"),
    [
        (FORGETS, talk_of([("x", "<think>a</think>b"), ("y", "c")]), False, "must not rewrite what has been said"),
        (CHATML, [{"role": "user", "content": "x"}], False, "needs an answer"),
        (CHATML, [{"role": "assistant", "content": "x"}], False, "needs an answer"),
        ("{% generation %}{% endgeneration %}x", talk_of([("x", "y")]), False, None),
        (MARKED.replace("'assistant'", "'model'"), talk_of([("x", "y")]), False, "must mark one"),
        (
            "{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x | length }}",
            talk_of([("x", "y")]),
            False,
            "must",
        ),
        ("nobody", talk_of([("x", "y")]), False, "no such chat template"),
    ],
)
def test_what_can_not_be_masked_is_refused(template: str, talk: Any, last: bool, rule: str | None) -> None:
    if rule is None:
        assert not any(encode_answers(KINDS["char"], talk, template=template, last=last).learnt)
        return
    with pytest.raises(TokenizerError, match=rule):
        encode_answers(KINDS["char"], talk, template=template, last=last)


def test_a_template_that_forgets_may_still_teach_its_last_answer() -> None:
    talk = talk_of([("x", "<think>a</think>b"), ("y", "c")])
    found = encode_answers(KINDS["char"], talk, template=FORGETS, last=True)
    assert [KINDS["char"].decode(run) for run in runs(found.ids, found.learnt)] == ["c<|im_end|>"]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("template", TEMPLATES)
def test_an_answer_without_weight_is_context(template: str, last: bool) -> None:
    tokenizer, source = KINDS["char"], TEMPLATES[template]
    talk = talk_of([("a", "b"), ("the", "cat"), ("is", "fish"), ("in", "five")])
    full = encode_answers(tokenizer, talk, template=source)
    answers = runs(full.ids, full.learnt)
    for weights in product((0, 1), repeat=4):
        weighed = [{**message, "weight": weights[at // 2]} if at % 2 else message for at, message in enumerate(talk)]
        if not any(weights):
            with pytest.raises(TokenizerError, match=r"needs an answer.*of weight 1"):
                encode_answers(tokenizer, weighed, template=source, last=last)
            continue
        found = encode_answers(tokenizer, weighed, template=source, last=last)
        wanted = [answer for answer, weight in zip(answers, weights, strict=True) if weight]
        assert runs(found.ids, found.learnt) == (wanted[-1:] if last else wanted)
        assert found.ids == full.ids[: len(found.ids)]
