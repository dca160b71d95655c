"""The walk through a network shows what the network does: its numbers are the model's own."""

import pytest
import torch

from transpect.base.errors import ConfigError
from transpect.cli.walk import walk
from transpect.cli.walk_page import walk_page
from transpect.core import Transformer, override, preset
from transpect.lm import LanguageModel
from transpect.text import train_tokenizer

TEXT = "小猫爱吃"
KINDS = {
    "gpt2": [],
    "llama": [("n_kv_heads", 2)],
    "gpt1": [],
    "prefix-lm": [],
}


@pytest.fixture(scope="module", params=KINDS)
def lm(request: pytest.FixtureRequest) -> LanguageModel:
    tokenizer = train_tokenizer("char", [TEXT, "小狗爱吃肉。"])
    sizes = {"d_model": 32, "n_heads": 4, "head_dim": 8, "n_layers": 3, "d_ff": 48, "vocab_size": tokenizer.vocab_size}
    config = override(
        preset(request.param), [*sizes.items(), ("init", {"kind": "normal", "std": 0.3}), *KINDS[request.param]]
    )
    return LanguageModel(Transformer(config, seed=1).eval(), tokenizer, {})


def test_the_guesses_are_those_of_the_model(lm) -> None:
    guesses = walk(lm, TEXT, k=4).guesses
    assert [(guess.token, pytest.approx(guess.probability, abs=1e-6)) for guess in guesses] == lm.next_token(TEXT, k=4)


def test_the_last_lens_is_the_output(lm) -> None:
    there = walk(lm, TEXT)
    assert [guess.id for guess in there.lens[-1]] == [guess.id for guess in there.guesses]
    assert [g.probability for g in there.lens[-1]] == pytest.approx([g.probability for g in there.guesses], abs=1e-6)
    assert len(there.lens) == len(there.norms) == 4


def test_norms_are_of_the_residual_stream(lm) -> None:
    there = walk(lm, TEXT)
    entering = torch.tensor(there.embeddings).norm(dim=-1)
    torch.testing.assert_close(torch.tensor(there.norms[0]), entering)


@pytest.mark.parametrize("lm", ["gpt2", "llama", "gpt1"], indirect=True)  # T5's positions add to the scores
def test_weights_are_the_softmax_of_the_visible_scores(lm) -> None:
    shown = walk(lm, TEXT).attention
    scores, weights = torch.tensor(shown.scores), torch.tensor(shown.weights)
    hidden = torch.triu(torch.ones_like(scores, dtype=torch.bool), 1)
    torch.testing.assert_close(weights, scores.masked_fill(hidden, float("-inf")).softmax(-1), atol=1e-5, rtol=1e-5)


def test_the_head_shown_is_the_most_decided_one(lm) -> None:
    shown = walk(lm, TEXT).attention
    assert 0 <= shown.layer < 3
    assert 0 <= shown.head < 4
    assert len(shown.weights) == len(lm.requests([TEXT])[0].prompt)


def test_walking_leaves_the_model_as_it_was(lm) -> None:
    kernel = lm.model.config.last.attention.kernel
    before = lm.next_token(TEXT)
    walk(lm, TEXT)
    assert lm.next_token(TEXT) == before
    assert {m.kernel for m in lm.model.modules() if hasattr(m, "kernel")} == {kernel}


def test_an_encoder_can_t_be_walked_through() -> None:
    tokenizer = train_tokenizer("wordpiece", ["some words"], 40)
    model = Transformer(override(preset("bert-base"), [("n_layers", 1), ("vocab_size", tokenizer.vocab_size)]))
    with pytest.raises(ConfigError, match="only a decoder"):
        walk(LanguageModel(model, tokenizer, {}), "some words")


def test_the_page_leaves_blank_what_is_not_seen(lm, capsys) -> None:
    from rich.console import Console

    shown = walk(lm, TEXT)
    tables = [part for part in walk_page(shown, TEXT, 8, {}) if not isinstance(part, str)]
    Console(width=200).print(tables[2])
    printed = [line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]]
    assert printed == [[f"{weight:.2f}" for weight in row if weight] for row in shown.attention.weights]
