"""`transpect chat`: what is said, what is done with what was said, and the same in a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import transpect
from transpect.base.errors import GenerationError
from transpect.lm import LanguageModel
from transpect.text import Tokenizer

TEMPLATE = "{% for m in messages %}{{ m.content }}。{% endfor %}"
ONE = ("--max-new-tokens", 4)


@pytest.fixture(scope="module")
def talker(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lm = transpect.load(tiny, device="cpu")
    for weight in lm.model.parameters():
        weight.data = weight.data * (8.0 if weight.ndim > 1 else 1.0)  # so that answers depend on what was said
    tokenizer = Tokenizer(lm.tokenizer.backend, dict(lm.tokenizer.special_tokens), chat_templates={"default": TEMPLATE})
    folder = tmp_path_factory.mktemp("talker") / "model"
    LanguageModel(lm.model, tokenizer, lm.generation).save(folder)
    return folder


@pytest.fixture(scope="module")
def lm(talker: Path) -> LanguageModel:
    return transpect.load(talker, device="cpu")


def said(*contents: str, system: str | None = None) -> list[dict[str, str]]:
    told = [] if system is None else [{"role": "system", "content": system}]
    return told + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def ask(lm: LanguageModel, *contents: str, system: str | None = None, **params: object) -> str:
    answer = lm.chat(said(*contents, system=system), max_new_tokens=4, **params)
    assert isinstance(answer, str)
    return answer


def test_each_line_is_answered_with_all_before_it(cli, talker, lm) -> None:
    answer = cli("chat", talker, *ONE, stdin="小猫\n\n小狗\n")
    first = ask(lm, "小猫")
    assert answer.code == 0
    assert answer.out.splitlines() == [first, ask(lm, "小猫", first, "小狗")]


def test_what_is_taken_back_was_not_said(cli, talker, lm) -> None:
    out = cli("chat", talker, *ONE, stdin="小猫\n/undo\n小狗\n/undo\n/undo\n").out.splitlines()
    assert out[0] == ask(lm, "小猫") and out[1] == "taken back: 小猫" and out[2] == ask(lm, "小狗")


def test_an_edit_goes_on_from_there(cli, talker, lm) -> None:
    first = ask(lm, "小猫")
    lines = "小猫\n小狗\n/edit 1 老人\n/history\n/edit 2 鱼\n/history\n/edit 今天\n"
    out = cli("chat", talker, *ONE, stdin=lines).out.splitlines()
    anew = ask(lm, "老人")
    assert out == [
        first,
        ask(lm, "小猫", first, "小狗"),
        anew,
        "1. user: 老人",
        f"2. assistant: {anew}",
        "1. user: 老人",
        "2. assistant: 鱼",
        ask(lm, "今天"),
    ]


def test_a_retry_has_another_seed(cli, talker, lm) -> None:
    lines = "小猫\n/retry\n/retry\n/history\n小狗\n"
    out = cli("chat", talker, *ONE, "--temperature", 1, "--seed", 5, stdin=lines).out.splitlines()
    tries = [ask(lm, "小猫", temperature=1.0, seed=seed) for seed in (5, 6, 7)]
    assert out[:3] == tries and len(set(tries)) == 3
    assert out[4] == f"2. assistant: {tries[2]}"
    assert out[5] == ask(lm, "小猫", tries[2], "小狗", temperature=1.0, seed=5)


def test_the_system_and_parameters_are_changed_on_the_way(cli, talker, lm) -> None:
    lines = "/system 鱼\n小猫\n/reset\n/system\n小猫\n/set max-new-tokens 2\n/params\n/undo\n小猫\n"
    lines += "/unset max_new_tokens\n/params\n"
    out = cli("chat", talker, *ONE, "--system", "老人", stdin=lines).out.splitlines()
    plain = ask(lm, "小猫")
    assert out == [ask(lm, "小猫", system="鱼"), plain, "max_new_tokens = 2", "taken back: 小猫", plain[:2]]


def test_a_conversation_is_saved_and_gone_on_with(cli, talker, lm, tmp_path) -> None:
    file = tmp_path / "talk.json"
    first = ask(lm, "小猫", system="鱼")
    cli("chat", talker, *ONE, "--system", "鱼", stdin=f"小猫\n/save {file}\n")
    assert json.loads(file.read_text(encoding="utf-8")) == said("小猫", first, system="鱼")
    for words, lines in ((("--load", file), ""), ((), f"/load {file}\n")):
        out = cli("chat", talker, *ONE, *words, stdin=f"{lines}小狗\n/quit\n今天\n").out.splitlines()
        assert out == [f"{file}: 2 messages", ask(lm, "小猫", first, "小狗", system="鱼")]


def test_a_message_may_begin_with_a_slash(cli, talker, tmp_path) -> None:
    file = tmp_path / "talk.json"
    cli("chat", talker, *ONE, stdin=f"//猫\n/save {file}\n")
    assert json.loads(file.read_text(encoding="utf-8"))[0]["content"] == "/猫"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/sytem 鱼", "no such command.*Did you mean 'system'"),
        ("/undo", "a message of yours"),
        ("/retry", "a message of yours"),
        ("/edit 3 鱼", "a message has a number from 1 to 0"),
        ("/edit", "a message of yours"),
        ("/set temperature", "/set needs a name and a value"),
        ("/set heat 3", "no such parameter of generation"),
        ("/set temperature hot", "temperature is given as X"),
        ("/set top_p 3", "top_p must be a probability"),
        ("/unset heat", "no such parameter"),
        ("/save", "/save needs a file"),
        ("/load nowhere.json", "nowhere.json"),
        ("小" * 40, "context of 24 tokens"),
    ],
)
def test_a_mistake_is_said_and_the_conversation_goes_on_as_it_was(cli, talker, lm, line, says) -> None:
    import re

    answer = cli("chat", talker, *ONE, stdin=f"{line}\n小猫\n")
    assert answer.code == 2
    assert re.search(says, answer.err), answer.err
    assert answer.out.splitlines() == [ask(lm, "小猫")]


def test_help_names_every_command(cli, talker) -> None:
    from transpect.cli.conversation import COMMANDS

    out = cli("chat", talker, stdin="/help\n").out
    assert all(f"/{name}" in out for name in COMMANDS)


def test_a_model_without_a_template_says_so_at_once(cli, tiny) -> None:
    answer = cli("chat", tiny, stdin="小猫\n")
    assert answer.code == 2 and "no such chat template" in answer.err and not answer.out


def test_a_template_may_come_from_a_file(cli, talker, lm, tmp_path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text("老人{{ messages[0].content }}", encoding="utf-8")
    answer = cli("chat", talker, "--template", file, *ONE, stdin="小猫\n")
    assert answer.out == lm.chat("小猫", template="老人{{ messages[0].content }}", max_new_tokens=4) + "\n"


def test_ctrl_c_keeps_what_came(cli, talker, lm, monkeypatch, tmp_path) -> None:
    real = LanguageModel.events
    cut = []

    def events(self, *arguments, **options):
        for number, event in enumerate(real(self, *arguments, **options)):
            if number == 2 and not cut:
                cut.append(number)
                raise KeyboardInterrupt
            yield event

    monkeypatch.setattr(LanguageModel, "events", events)
    file = tmp_path / "talk.json"
    answer = cli("chat", talker, *ONE, stdin=f"小猫\n/save {file}\n小狗\n")
    assert answer.code == 0 and "(stopped)" in answer.err
    monkeypatch.undo()
    messages = json.loads(file.read_text(encoding="utf-8"))
    assert messages == said("小猫", ask(lm, "小猫")[:2])
    assert answer.out.splitlines()[-1] == ask(lm, "小猫", messages[1]["content"], "小狗")


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_line(cli, talker) -> None:
    answer = cli("chat", talker, *ONE, stdin="\ufeff/system 小猫\r\n/history\r\n")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "system: 小猫\n"


def test_an_error_within_an_answer_begins_a_line_of_its_own(cli, talker, monkeypatch) -> None:
    def pieces(*_: object) -> Iterator[str]:
        yield "half"
        raise GenerationError("two\nlines")

    monkeypatch.setattr("transpect.cli.conversation.Conversation.say", pieces)
    answer = cli("chat", talker, *ONE, stdin="小\n")
    assert (answer.code, answer.out, answer.err) == (2, "half\n", "error: two lines\n")
