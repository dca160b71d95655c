"""`transpect generate --prompts`: each line answered as it would be alone, and an interrupted file gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import transpect
from transpect.cli import many

OPTIONS = ("--temperature", 1, "--max-new-tokens", 4, "--n", 2, "--batch-size", 3)
LINES = ["小猫", "", "小狗爱吃", "今天", "老人在河边", "鱼", "小", "小鸟"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return file


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_each_line_is_answered_as_it_would_be_alone(cli, tiny, prompts, tmp_path) -> None:
    out = tmp_path / "out.jsonl"
    answer = cli("generate", tiny, "--prompts", prompts, "--out", out, *OPTIONS, "--seed", 5)
    assert answer.code == 0, answer.err
    lm = transpect.load(tiny, device="cpu")
    found = rows(out)
    asked = [(number, line) for number, line in enumerate(LINES, 1) if line]
    assert [(row["line"], row["prompt"], row["choice"]) for row in found] == [
        (*each, c) for each in asked for c in (0, 1)
    ]
    for line, own in zip([line for _, line in asked], zip(found[::2], found[1::2], strict=True), strict=True):
        alone = lm.complete([line], temperature=1, max_new_tokens=4, n=2, seed=5)
        assert [row["ids"] for row in own] == [list(result.ids) for result in alone]
        assert [row["text"] for row in own] == [result.text for result in alone]
        assert [row["seed"] for row in own] == [5, 6]


def test_an_interrupted_file_becomes_what_it_would_have_been(cli, tiny, prompts, tmp_path) -> None:
    """Cut anywhere, also within a line and within a character; without a seed, which is then drawn once."""
    out = tmp_path / "out.jsonl"
    words = ("generate", tiny, "--prompts", prompts, "--out", out, *OPTIONS)
    assert cli(*words).code == 0
    whole = out.read_bytes()
    assert len({row["seed"] for row in rows(out)}) == len(rows(out))
    for cut in [*range(0, len(whole), len(whole) // 9), len(whole) - 1, len(whole)]:
        out.write_bytes(whole[:cut])
        answer = cli(*words)
        assert answer.code == 0, answer.err
        assert out.read_bytes() == whole, cut


def test_a_search_that_finds_fewer_outputs_goes_on_too(cli, tiny, tmp_path) -> None:
    prompts, out = tmp_path / "two.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"prompt": "小猫"}\n{"prompt": "小狗"}\n{"prompt": "鱼"}\n', encoding="utf-8")
    choices = ("--choices", "鱼", "--choices", "虫")
    words = ("generate", tiny, "--prompts", prompts, "--out", out, *choices, "--num-beams", 4, "--n", 4)
    assert cli(*words).code == 0
    whole = out.read_bytes()
    assert len(rows(out)) < 3 * 4 and {row["line"] for row in rows(out)} == {1, 2, 3}
    for kept in range(len(rows(out)) + 1):
        out.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
        answer = cli(*words)
        assert answer.code == 0, answer.err
        assert out.read_bytes() == whole, kept


@pytest.mark.parametrize("what", ["template", "draft"])
def test_another_template_or_draft_of_the_same_name_is_refused(cli, tiny, prompts, tmp_path, what) -> None:
    model, draft, out = tmp_path / "model", tmp_path / "draft", tmp_path / "out.jsonl"
    for folder in (model, draft):
        shutil.copytree(tiny, folder)
    words = ["generate", model, "--prompts", prompts, "--out", out, "--max-new-tokens", 2]
    words += ["--draft", draft, "--temperature", 1, "--seed", 1] if what == "draft" else []
    assert cli(*words).code == 0
    out.write_bytes(b"".join(out.read_bytes().splitlines(keepends=True)[:1]))
    if what == "template":
        (model / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    else:
        lm = transpect.load(draft, device="cpu")
        with torch.no_grad():
            lm.model.token.weight += 1e-3
        shutil.rmtree(draft)
        lm.save(draft)
    answer = cli(*words)
    assert answer.code == 2 and str(out) in answer.err


def test_what_stopped_within_a_batch_leaves_whole_lines(cli, tiny, prompts, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out.jsonl"
    words = ("generate", tiny, "--prompts", prompts, "--out", out, *OPTIONS, "--seed", 1)
    real, calls = many._answers, []

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(many, "_answers", failing)
    assert cli(*words).code == 130
    begun = out.read_bytes()
    assert len(begun.splitlines()) == 3 * 2 and begun.endswith(b"\n")
    monkeypatch.setattr(many, "_answers", real)
    assert cli(*words).code == 0
    assert out.read_bytes().startswith(begun)
    again = tmp_path / "again.jsonl"
    assert cli(*words[:4], "--out", again, *OPTIONS, "--seed", 1).code == 0
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("what", ["prompts", "parameters", "seed", "batch", "model", "nothing beside it", "order"])
def test_an_output_that_was_begun_otherwise_is_refused(cli, tiny, prompts, tmp_path, what: str) -> None:
    out, words = tmp_path / "out.jsonl", ["generate", tiny, "--prompts", prompts, "--out", tmp_path / "out.jsonl"]
    options = ["--max-new-tokens", 3, "--seed", 1]
    assert cli(*words, *options).code == 0
    if what == "prompts":
        prompts.write_text("小狗\n", encoding="utf-8")
    elif what == "parameters":
        options = ["--max-new-tokens", 4, "--seed", 1]
    elif what == "seed":
        options = ["--max-new-tokens", 3]
    elif what == "batch":
        options = [*options, "--batch-size", 2]
    elif what == "model":
        lm = transpect.load(tiny, device="cpu")
        lm.model.token.weight.data[5, 5] += 1
        lm.save(tmp_path / "other")
        words[1] = tmp_path / "other"
    elif what == "nothing beside it":
        (tmp_path / "out.jsonl.job.json").unlink()
    else:
        out.write_text("".join(reversed(out.read_text(encoding="utf-8").splitlines(keepends=True))), encoding="utf-8")
    before = out.read_bytes()
    answer = cli(*words, *options)
    assert answer.code == 2 and answer.out == ""
    assert "to begin anew" in answer.err, answer.err
    assert out.read_bytes() == before


def test_a_line_of_json_says_more(cli, tiny, tmp_path) -> None:
    file, out = tmp_path / "p.jsonl", tmp_path / "o.jsonl"
    lm = transpect.load(tiny, device="cpu")
    ids = lm.tokenizer.encode("小狗")
    lines = [
        {"prompt": "小猫", "id": "a"},
        {"prompt": ids, "params": {"seed": 3, "temperature": 1.0, "n": 2}},
        {"prompt": "鱼", "id": {"b": 1}, "params": {"max_new_tokens": 2}},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert cli("generate", tiny, "--prompts", file, "--out", out, "--max-new-tokens", 4).code == 0
    found = rows(out)
    assert [row.get("id") for row in found] == ["a", None, None, {"b": 1}]
    assert [len(row["ids"]) for row in found] == [4, 4, 4, 2]
    assert [row["text"] for row in found[1:3]] == lm.generate(ids, n=2, seed=3, temperature=1.0, max_new_tokens=4)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p.txt", "\n \n", "p.txt: a file of prompts must hold at least one"),
        ("p.csv", "a", "p.csv: a file of prompts must end in .txt or .jsonl"),
        ("p.jsonl", '{"prompt": "小"}\n{"prompt": \n', "p.jsonl:2: not valid JSON"),
        ("p.jsonl", '{"prompt": "小"}\n[1]\n', "p.jsonl:2: a line must be one JSON object"),
        ("p.jsonl", '{"promt": "小"}\n', "p.jsonl:1: a line holds no 'promt'. Did you mean 'prompt'"),
        ("p.jsonl", '{"prompt": "小", "messages": []}\n', "p.jsonl:1: a line must have either `prompt`"),
        ("p.jsonl", '{"prompt": [1.5]}\n', "p.jsonl:1: a line must have either `prompt`"),
        ("p.jsonl", '{"prompt": "小", "params": 3}\n', "p.jsonl:1: params must be a mapping"),
        ("p.jsonl", '{"prompt": "小"}\n{"prompt": "小", "params": {"top_p": 2}}\n', "p.jsonl:2: top_p must be"),
        ("p.txt", "小\n\n" + "小" * 60 + "\n", "p.txt:3: .*context of 24 tokens"),
        ("p.jsonl", '{"messages": [{"role": "user", "content": "小"}]}\n', "p.jsonl:1: .*no such chat template"),
    ],
)
def test_a_mistake_in_a_file_is_found_before_anything_is_written(cli, tiny, tmp_path, name, text, says) -> None:
    import re

    (tmp_path / name).write_text(text, encoding="utf-8")
    answer = cli("generate", tiny, "--prompts", tmp_path / name, "--out", tmp_path / "o.jsonl")
    assert answer.code == 2
    assert re.search(f"^error: .*{says}[^\n]*\n$", answer.err), answer.err
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--prompts", "p.txt"), "--prompts needs --out with it"),
        (("--out", "o.jsonl"), "--out needs --prompts with it"),
        (("小", "--prompts", "p.txt", "--out", "o.jsonl"), "a text or a file of prompts"),
        (("--prompts", "nowhere.txt", "--out", "o.jsonl"), "nowhere.txt: no such file"),
    ],
)
def test_options_that_do_not_fit(cli, tiny, tmp_path, monkeypatch, words, says) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cli("generate", tiny, *words)
    assert answer.code == 2 and says in answer.err, answer.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"prompt": "小", "params": {"prompts": 1}}', "no generation parameter 'prompts'"),
        ('{"prompt": "小", "params": {"around": null}}', "no generation parameter 'around'"),
        ('{"prompt": "小", "id": "\\ud800"}', "Unicode"),
        ('{"prompt": "小", "id": NaN}', "finite"),
        ('{"prompt": [true]}', "a list of ids"),
    ],
)
def test_a_line_that_can_t_be_answered_or_repeated_names_itself(cli, tiny, tmp_path, line, says) -> None:
    file, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    file.write_text(f'{{"prompt": "小"}}\n{line}\n', encoding="utf-8")
    answer = cli("generate", tiny, "--prompts", file, "--out", out)
    assert answer.code == 2
    assert says in answer.err and f"{file}:2" in answer.err
    assert not out.exists()


@pytest.mark.parametrize("place", ["", "/", "."])
def test_an_output_is_a_file(cli, tiny, prompts, place) -> None:
    answer = cli("generate", tiny, "--prompts", prompts, "--out", place)
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "remove" not in answer.err  # no advice to remove a directory


@pytest.mark.parametrize("option", ["--json", "--stream", "--no-stream", "--only-new"])
def test_no_option_of_printing_is_void_beside_an_output(cli, tiny, prompts, tmp_path, option) -> None:
    answer = cli("generate", tiny, "--prompts", prompts, "--out", tmp_path / "out.jsonl", option)
    assert answer.code == 2 and "how an answer is printed" in answer.err
