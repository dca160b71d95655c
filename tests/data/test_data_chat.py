"""Conversations to rows: labels stand on what the assistant says, whatever the form, the packing and the pad token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transpect.base.errors import DataError
from transpect.core import Transformer, override, preset
from transpect.data.batch import IGNORE
from transpect.data.documents import Document, Listed
from transpect.data.loader import Batches
from transpect.data.objectives import Chat
from transpect.data.sources import Chat as Source
from transpect.data.sources import Text, source_from_path
from transpect.data.split import split
from transpect.text import Tokenizer, encode_answers, train_tokenizer
from transpect.train import evaluate

MakeTokenizer = Callable[..., Tokenizer]
TEMPLATE = (
    "{% for m in messages %}{{ m.role + ' ' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)
TALKS = [
    [("a", "b")],
    [("what is it", "a fish"), ("and that", "天地")],
    [("long " * 4, "yes")],
    [("q", "r"), ("s", "t")],
]

FORMS: dict[str, Callable[[list[tuple[str, str]]], dict[str, Any]]] = {
    "openai": lambda pairs: {"messages": messages_of(pairs)},
    "sharegpt": lambda pairs: {
        "conversations": [{"from": who, "value": v} for p in pairs for who, v in zip(("human", "gpt"), p, strict=True)]
    },
    "alpaca": lambda pairs: {
        "instruction": pairs[-1][0],
        "input": "",
        "output": pairs[-1][1],
        "history": [list(pair) for pair in pairs[:-1]],
    },
}


def messages_of(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def file_of(folder: Path, rows: list[Any], name: str = "x.jsonl") -> str:
    path = folder / name
    whole = json.dumps(rows, indent=1) if name.endswith(".json") else "\n".join(map(json.dumps, rows))
    path.write_text(whole, encoding="utf-8")
    return str(path)


def documents_of(talks: list[list[tuple[str, str]]] = TALKS) -> Listed:
    return Listed(
        [Document("x", record=json.dumps({"messages": messages_of(talk)}), line=n) for n, talk in enumerate(talks)]
    )


def labelled(batches: Batches) -> list[list[tuple[list[int], list[int]]]]:
    """For each row, each of its documents: ids, and labels."""
    found = []
    for batch in batches.once():
        for row in range(len(batch.ids)):
            real, segment = batch.tags.position[row] >= 0, batch.tags.segment[row]
            own = [real & (segment == number) for number in range(int(segment.max()) + 1)]
            found.append([(batch.ids[row][one].tolist(), batch.labels[row][one].tolist()) for one in own])
    return found


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("told", [False, True])
def test_every_form_gives_the_same_messages(form: str, told: bool, name: str, tmp_path: Path) -> None:
    path = file_of(tmp_path, [FORMS[form](talk) for talk in TALKS], name)
    found = list(Source(path, form if told else "auto").documents())  # type: ignore[arg-type]
    assert [json.loads(one.record or "") for one in found] == [{"messages": messages_of(talk)} for talk in TALKS]
    assert found[1].text == "what is it\na fish\nand that\n天地"
    assert found[0].file == path
    if name == "x.jsonl":
        assert [one.line for one in found] == [1, 2, 3, 4]
    else:
        text = Path(path).read_text().split("\n")
        assert [text[(one.line or 0) - 1].strip() for one in found] == ["{"] * 4


def test_systems_inputs_and_tools(tmp_path: Path) -> None:
    call = {"name": "f", "arguments": {"a": 1}}
    as_text = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    rows = {
        "alpaca": {"instruction": "Add.", "input": "1+1", "output": "2", "system": "Be brief."},
        "sharegpt": {
            "system": "Be brief.",
            "tools": '[{"name": "f"}]',
            "conversations": [
                {"from": "human", "value": "x"},
                {"from": "function_call", "value": json.dumps(call)},
                {"from": "observation", "value": "5"},
                {"from": "gpt", "value": "five"},
            ],
        },
        "openai": {
            "tools": [{"name": "f"}],
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": None, "tool_calls": [as_text]},
            ],
        },
    }
    found = {}
    for form, row in rows.items():
        (document,) = Source(file_of(tmp_path, [row], f"{form}.jsonl")).documents()
        found[form] = json.loads(document.record or "")
    system = {"role": "system", "content": "Be brief."}
    assert found["alpaca"]["messages"][:2] == [system, {"role": "user", "content": "Add.\n\n1+1"}]
    assert found["sharegpt"]["tools"] == found["openai"]["tools"] == [{"name": "f"}]
    assert [m["role"] for m in found["sharegpt"]["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert found["sharegpt"]["messages"][2]["tool_calls"] == [{"type": "function", "function": call}]
    assert found["openai"]["messages"][1]["tool_calls"] == [{"type": "function", "function": call}]


@pytest.mark.parametrize(
    ("rows", "line", "said"),
    [
        ([{"text": "x"}], 1, "keys of a known form"),
        (
            [FORMS["openai"](TALKS[0]), FORMS["alpaca"](TALKS[0])],
            2,
            "openai, as the first of its file, on line [12]",
        ),
        (
            [FORMS["sharegpt"](TALKS[0]), {"conversations": [{"from": "humann", "value": "x"}]}],
            2,
            "Did you mean 'human'",
        ),
        ([FORMS["sharegpt"](TALKS[0]), {"conversations": [{"from": "human"}]}], 2, "turn 0 must be"),
        ([{"messages": []}], 1, "at least one message"),
        ([{"messages": [{"content": "x"}]}], 1, "message 0 must be an object with a `role`"),
        ([{"messages": [{"role": "user"}]}], 1, "message 0 must have a `content`"),
        ([{"messages": ["x"]}], 1, "message 0"),
        ([{"instruction": 1, "output": "x"}], 1, "`instruction` must be a string"),
        ([{"instruction": "x", "output": "x", "history": ["x"]}], 1, "pairs"),
        ([{"messages": messages_of(TALKS[0]), "tools": "{"}], 1, "`?tools`? must be JSON"),
        (
            [{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}],
            1,
            "message 0 must have parts that are",
        ),
        ([{"messages": [{"role": "user", "content": [{"text": 3}]}]}], 1, "message 0 must have parts that are texts"),
        ([{"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]}], 1, "`weight` of 0"),
        ([{"messages": [{"role": "assistant", "content": "x", "weight": []}]}], 1, "`weight` of 0"),
        ([{"messages": [{"role": "assistant", "tool_calls": "x"}]}], 1, "`tool_calls` that are a list"),
        ([FORMS["openai"](TALKS[0]), ["x"]], 2, "must be (one|a) JSON object"),
    ],
)
@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_what_fits_no_form_is_named_by_its_line(
    name: str, rows: list[Any], line: int, said: str, tmp_path: Path
) -> None:
    path = file_of(tmp_path, rows, name)
    with pytest.raises(DataError, match=said) as caught:
        Source(path).documents()
    assert str(caught.value.file) == path
    assert caught.value.line is not None
    if name == "x.jsonl":
        assert caught.value.line == line


def test_broken_arrays_are_named_by_their_line(tmp_path: Path) -> None:
    for text, line in (("[\n{\n}\n{}]", 4), ("[\n{},\n{'a': 1}]", 3), ("[{}", 1), ("[]\n x", 1)):
        path = tmp_path / "x.json"
        path.write_text(text)
        with pytest.raises(DataError) as caught:
            Source(str(path), "openai").documents() if "{}" not in text else list(_rows(path))
        assert caught.value.line == line, text


def _rows(path: Path) -> Any:
    from transpect.data.sources.rows import rows

    return rows(path)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("answers", ["all", "last"])
@pytest.mark.parametrize("specials", [{}, {"pad": "</s>"}, {"bos": None}])
def test_labels_stand_on_answers_and_their_ends(
    specials: dict[str, Any], answers: Any, pack: bool, letters: MakeTokenizer
) -> None:
    tokenizer = letters(**specials)
    objective = Chat(answers, pack, template=TEMPLATE)
    batches = Batches(documents_of(), objective, tokenizer, batch_size=2, seq_len=80)
    found = [document for row in labelled(batches) for document in row]
    wanted = []
    for talk in TALKS:
        whole = encode_answers(tokenizer, messages_of(talk), template=TEMPLATE, last=answers == "last")
        labels = [token if own else IGNORE for token, own in zip(whole.ids, whole.learnt, strict=True)]
        wanted.append((whole.ids[:-1], labels[1:]))
        said = tokenizer.decode([label for label in labels if label != IGNORE])
        assert said == "".join(f"{answer}</s>" for _, answer in (talk[-1:] if answers == "last" else talk))
    assert sorted(found) == sorted(wanted)
    if pack:
        assert {tuple(batch.ids.shape)[1] for batch in batches.once()} == {80}
        assert len(labelled(batches)) < len(TALKS)
    assert batches.n_characters == sum(len(b) for talk in TALKS for _, b in (talk[-1:] if answers == "last" else talk))


def test_packed_conversations_lose_what_they_lose_alone(letters: MakeTokenizer) -> None:
    tokenizer = letters(pad="</s>")
    small = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32, "context_length": 80}
    config = override(preset("llama"), {**small, "vocab_size": tokenizer.vocab_size}.items())
    losses = []
    for pack in (False, True):
        objective = Chat(pack=pack, template=TEMPLATE)
        objective.check(config, tokenizer, 80)
        model = Transformer(objective.adapt(config), seed=3).double()
        batches = Batches(documents_of(), objective, tokenizer, batch_size=2, seq_len=80)
        losses.append(evaluate(model, batches.once()))
    assert losses[0].n_tokens == losses[1].n_tokens
    assert losses[0].total_nats == pytest.approx(losses[1].total_nats, rel=1e-12)


def test_too_long_conversations(letters: MakeTokenizer) -> None:
    tokenizer = letters()
    talks = [[("a", "b")], [("a" * 30, "b")], [("a", "b" * 30)], [("c", "d")]]
    places = len(encode_answers(tokenizer, messages_of(talks[0]), template=TEMPLATE).ids) - 1

    def rows(too_long: Any, seq_len: int) -> list[str]:
        objective = Chat(pack=False, too_long=too_long, template=TEMPLATE)
        found = labelled(Batches(documents_of(talks), objective, tokenizer, batch_size=1, seq_len=seq_len))
        return [tokenizer.decode([label for label in labels if label != IGNORE]) for ((_, labels),) in found]

    assert rows("error", 80) == ["b</s>", "b</s>", "b" * 30 + "</s>", "d</s>"]
    assert rows("drop", places) == ["b</s>", "d</s>"]
    assert rows("crop", places) == ["b</s>", "b" * 2, "d</s>"]  # the second one has no answer left
    with pytest.raises(DataError, match=rf"at most seq_len = {places} places") as caught:
        rows("error", places)
    assert caught.value.line == 1


def test_what_is_no_conversation_is_refused(letters: MakeTokenizer, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a line\n")
    with pytest.raises(
        DataError, match=r"x.txt:1: the chat objective needs documents with messages.*source of kind chat"
    ):
        Batches(Text(str(tmp_path / "x.txt")).documents(), Chat(template=TEMPLATE), letters(), batch_size=1, seq_len=9)
    alone = Listed([Document("x", record=json.dumps({"messages": messages_of([("a", "b")])[:1]}), file="f", line=3)])
    with pytest.raises(DataError, match=r"f:3: .*needs an answer"):
        Batches(alone, Chat(template=TEMPLATE), letters(), batch_size=1, seq_len=9)


def test_whoever_chats_stops_at_the_end_of_a_turn(letters: MakeTokenizer) -> None:
    tokenizer = train_tokenizer("char", ["abc usertin"], extra_special_tokens=["<|im_end|>"])
    ended = TEMPLATE.replace("eos_token", "'<|im_end|>'")
    assert Chat(template=TEMPLATE).generation(tokenizer)["eos_token_id"] == tokenizer.eos_id
    both = [tokenizer.eos_id, tokenizer.token_to_id("<|im_end|>")]
    assert Chat(template=ended).generation(tokenizer)["eos_token_id"] == both


def test_a_template_of_the_recipe_is_saved_with_the_tokenizer(letters: MakeTokenizer, tmp_path: Path) -> None:
    Chat(template=TEMPLATE).dressed(letters()).save(tmp_path)
    assert Tokenizer.load(tmp_path).chat_templates == {"default": TEMPLATE}
    assert Chat().dressed(letters()) is letters()


def test_batches_are_a_function_of_seed_and_place(letters: MakeTokenizer) -> None:
    def made() -> Batches:
        return Batches(documents_of(), Chat(template=TEMPLATE), letters(), batch_size=2, seq_len=80, seed=4)

    first, again = made(), made()
    ahead = [next(first) for _ in range(5)]
    for number, batch in enumerate(ahead):
        fresh = made()
        fresh.load_state(again.state())
        same = next(fresh)
        assert torch.equal(same.ids, batch.ids) and torch.equal(same.labels, batch.labels), number
        next(again)


def test_files_given_by_hand_keep_the_source(tmp_path: Path) -> None:
    path = file_of(tmp_path, [FORMS["openai"](talk) for talk in TALKS], "x.json")
    assert source_from_path(path, Source("old", "openai")) == Source(path, "openai")
    train, valid = split(Source(path).documents(), 0.25)
    assert (train.size, valid.size) == (3, 1)


def test_content_in_parts_is_one_text_and_weights_are_kept(letters: MakeTokenizer, tmp_path: Path) -> None:
    """Without that a template would write the parts as Python shows a list."""
    parts = [{"type": "text", "text": "what "}, {"type": "text", "text": "is it"}]
    answers = [{"role": "assistant", "content": text, "weight": weight} for text, weight in (("no", 0), ("fish", 1))]
    openai = {
        "messages": [{"role": "user", "content": parts}, answers[0], {"role": "user", "content": "q"}, answers[1]]
    }
    turns = [("human", "what is it", 1), ("gpt", "no", 0), ("human", "q", 1), ("gpt", "fish", 1)]
    sharegpt = {"conversations": [{"from": who, "value": said, "weight": weight} for who, said, weight in turns]}
    for row in (openai, sharegpt):
        documents = Source(file_of(tmp_path, [row])).documents()
        batches = Batches(documents, Chat(template=TEMPLATE), letters(), batch_size=1, seq_len=80)
        (((ids, labels),),) = labelled(batches)
        assert "user what is it</s>assistant no</s>" in letters().decode(ids)
        assert letters().decode([label for label in labels if label != IGNORE]) == "fish</s>"
