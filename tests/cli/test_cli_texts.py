"""`transpect translate`, `score`, `embed` and `fill-mask` print what the facade gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import transpect
from transpect.core import MaskedLM, Pooled, Transformer, override, preset
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

TEXTS = ["小猫爱吃鱼。", "小狗爱吃肉。", "今天下雨"]
SIZES = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "context_length": 40}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An encoder–decoder, a masked language model and a sentence encoder, tiny and untrained."""
    folder = tmp_path_factory.mktemp("models")
    plain, masked = train_tokenizer("char", TEXTS), train_tokenizer("wordpiece", TEXTS * 3, 60)
    made = {}
    for name, tokenizer, row, head in (
        ("translator", plain, "transformer-base", None),
        ("masked", masked, "bert-base", MaskedLM()),
        ("sentences", masked, "bert-base", Pooled(normalize=True)),
    ):
        changes = [*SIZES.items(), ("vocab_size", tokenizer.vocab_size), *([] if head is None else [("head", head)])]
        generation = {"decoder_start_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
        LanguageModel(Transformer(override(preset(row), changes), seed=2), tokenizer, generation).save(folder / name)
        made[name] = folder / name
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "texts.txt"
    place.write_text("\n".join(TEXTS) + "\n\n", encoding="utf-8")
    return place


def test_translations(cli, models, file, tmp_path) -> None:
    lm = transpect.load(models["translator"], device="cpu")
    options = ("--max-new-tokens", 5)
    expected = lm.translate(TEXTS, max_new_tokens=5)
    pairs = tmp_path / "texts.jsonl"
    pairs.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    for words, stdin in (
        (("--file", file), ""),
        (("--file", pairs), ""),
        ((), "\n".join(TEXTS)),
        (("-",), "\n".join(TEXTS)),
    ):
        answer = cli("translate", models["translator"], *words, *options, stdin=stdin)
        assert answer.code == 0, answer.err
        assert answer.out.splitlines() == expected
    assert cli("translate", models["translator"], TEXTS[1], *options).out == expected[1] + "\n"
    rows = [
        json.loads(line)
        for line in cli(
            "translate", models["translator"], "--file", file, *options, "--n", 2, "--length-penalty", 0.5, "--json"
        ).out.splitlines()
    ]
    two = lm.translate(TEXTS, n=2, length_penalty=0.5, max_new_tokens=5)
    assert [row["translation"] for row in rows] == two
    assert [(row["text"], row["choice"]) for row in rows] == [(text, c) for text in TEXTS for c in (0, 1)]


def test_scores(cli, tiny, models, file, tmp_path) -> None:
    lm = transpect.load(tiny, device="cpu")
    rows = [json.loads(line) for line in cli("score", tiny, "--file", file, "--json").out.splitlines()]
    for row, text, own in zip(rows, TEXTS, lm.score(TEXTS), strict=True):
        assert row == {
            "text": text,
            "logprob": pytest.approx(own.logprob),
            "perplexity": pytest.approx(own.perplexity),
            "bits_per_character": pytest.approx(own.bits_per_char),
            "n_tokens": own.n_tokens,
            "n_characters": len(text),
            "logprobs": pytest.approx(list(own.logprobs)),
        }
    table = cli("score", tiny, "鱼", "肉", "--given", "小猫爱吃").out.splitlines()
    given = lm.score([("小猫爱吃", "鱼"), ("小猫爱吃", "肉")])
    assert [line.split()[0] for line in table[1:]] == [f"{own.logprob:.4f}" for own in given]
    assert [line.split()[-1] for line in table[1:]] == ["鱼", "肉"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("小猫\t鱼\n小狗\t肉\n", encoding="utf-8")
    (first, _) = cli("score", models["translator"], "--pairs", pairs, "--json").out.splitlines()
    (own,) = transpect.load(models["translator"], device="cpu").score(("小猫", "鱼"))
    assert json.loads(first)["logprob"] == pytest.approx(own.logprob)
    assert json.loads(first)["given"] == "小猫"


def test_vectors(cli, models, file, tmp_path) -> None:
    vectors = transpect.load(models["sentences"], device="cpu").embed(TEXTS).numpy()
    lines = cli("embed", models["sentences"], "--file", file).out
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["text"] for row in rows] == TEXTS
    assert np.array([row["vector"] for row in rows]) == pytest.approx(vectors, abs=1e-6)
    for name in ("v.npy", "v.jsonl"):
        answer = cli("embed", models["sentences"], *TEXTS, "--out", tmp_path / name)
        assert answer.out == f"{tmp_path / name}: 3 vectors of 16 numbers\n"
    assert np.load(tmp_path / "v.npy") == pytest.approx(vectors, abs=1e-6)
    assert (tmp_path / "v.jsonl").read_text(encoding="utf-8") == lines
    assert cli("embed", models["sentences"], "小" * 60, "--truncate").code == 0


def test_guesses(cli, models) -> None:
    text = "小 [MASK] 爱 吃 [MASK]"
    expected = transpect.load(models["masked"], device="cpu").fill_mask(text, 3)
    answer = cli("fill-mask", models["masked"], text, "--k", 3, "--json")
    assert answer.code == 0, answer.err
    found = [[(one["token"], one["probability"]) for one in json.loads(line)] for line in answer.out.splitlines()]
    assert [[token for token, _ in one] for one in found] == [[token for token, _ in one] for one in expected]
    assert found[0][0][1] == pytest.approx(expected[0][0][1])
    shown = cli("fill-mask", models["masked"], text, "--k", 3).out.splitlines()
    assert shown[1] == "  ".join(f"{token} {p:.4f}" for token, p in expected[1])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("translate", "tiny", "小"), "translate() is for an encoder–decoder"),
        (("translate", "translator", "小", "--file", "t.txt"), "texts are given, or a file"),
        (("translate", "translator", "小", "--num-beams", "2", "--n", "3"), "n"),
        (("score", "translator", "小"), "Pass (source, target) pairs"),
        (("score", "tiny", "小", "--pairs", "p.tsv"), "--pairs says all that is scored"),
        (("embed", "tiny", "小"), "this model can't embed"),
        (("embed", "sentences", "小", "--out", "v.txt"), ".npy or a .jsonl"),
        (("embed", "sentences", "小" * 60), "context of 40 tokens"),
        (("fill-mask", "tiny", "小"), "this model can't fill_mask"),
        (("fill-mask", "masked", "小"), "at least one mask token"),
        (("fill-mask", "masked"), "must not be empty"),
        (("embed", "sentences", "--file", "nowhere.txt"), "nowhere.txt: no such file"),
    ],
)
def test_a_mistake_is_one_line(cli, tiny, models, words, says) -> None:
    place = {"tiny": tiny, **models}[words[1]]
    answer = cli(words[0], place, *words[2:])
    assert answer.code == 2 and not answer.out
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1
    assert says in answer.err
