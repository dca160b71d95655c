"""Tokens that are never written: whoever asks for it, and `transformers` agrees."""

import warnings
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
from transformers.generation.logits_process import NoBadWordsLogitsProcessor, SuppressTokensLogitsProcessor

from transpect.base.errors import GenerationError
from transpect.decode import GenerationParams, Request, generate
from transpect.decode.defaults import Defaults
from transpect.decode.sampling import Sampler
from transpect.interop import load_model

from .conftest import after

VOCAB = 31
LOGITS = torch.randn(20, VOCAB, generator=torch.Generator().manual_seed(0)) * 3


def filtered(params: GenerationParams, written: int = 0) -> torch.Tensor:
    return Sampler([params] * 20, [0] * 20, VOCAB, torch.device("cpu")).filter(LOGITS, after(written, 20))


@pytest.mark.parametrize("banned", [(4,), (0, 30, 7), tuple(range(30)), (4, 99)], ids=str)
def test_a_banned_token_is_never_chosen(banned: tuple[int, ...]) -> None:
    within = [token for token in banned if token < VOCAB]
    for params in (GenerationParams(banned=banned), GenerationParams(temperature=1.3, top_k=5, banned=banned)):
        sampler = Sampler([params] * 20, list(range(20)), VOCAB, torch.device("cpu"))
        for step in range(5):
            assert not set(sampler.choose(LOGITS, after(step, 20)).token.tolist()) & set(banned)
    left = filtered(GenerationParams(temperature=1.0, banned=banned))
    assert bool((left[:, within] == -torch.inf).all())
    theirs = SuppressTokensLogitsProcessor(within)(torch.zeros(20, 1, dtype=torch.long), LOGITS)
    assert torch.allclose(left.softmax(-1), theirs.softmax(-1), atol=1e-6)


def test_a_batch_mixes_bans() -> None:
    rows = [GenerationParams(banned=(int(row.argmax()),) if i % 2 else ()) for i, row in enumerate(LOGITS)]
    chosen = Sampler(rows, [0] * 20, VOCAB, torch.device("cpu")).choose(LOGITS, after(0, 20)).token
    second = LOGITS.topk(2).indices
    assert chosen.tolist() == [int(second[i, i % 2]) for i in range(20)]


def test_bans_and_a_minimum_hold_together() -> None:
    params = GenerationParams(min_new_tokens=3, eos_ids=(5,), banned=(6,), temperature=1.0)
    assert bool((filtered(params)[:, [5, 6]] == -torch.inf).all())
    late = filtered(params, written=3)
    assert bool((late[:, 6] == -torch.inf).all())
    assert bool((late[:, 5] > -torch.inf).all())


@pytest.mark.parametrize(
    ("entries", "words", "banned"),
    [
        ({"bad_words_ids": [[7]]}, ((7,),), ()),
        ({"bad_words_ids": [[7], [9]], "suppress_tokens": [9, 11]}, ((7,), (9,)), (9, 11)),
        ({"bad_words_ids": [[2], [7]]}, ((2,), (7,)), ()),  # an end is no bad word
        ({"bad_words_ids": [[7], [8, 9], [0, 9]]}, ((7,), (8, 9), (0, 9)), ()),
        ({"bad_words_ids": None, "suppress_tokens": None}, (), ()),
        ({"bad_words_ids": [], "suppress_tokens": []}, (), ()),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_a_checkpoint_says_what_is_never_written(
    entries: dict[str, Any], words: tuple[tuple[int, ...], ...], banned: tuple[int, ...]
) -> None:
    params = Defaults.read({"eos_token_id": 2, **entries}).params
    assert (params.bad_words, params.banned) == (words, banned)
    if entries["bad_words_ids"]:
        processor = NoBadWordsLogitsProcessor(entries["bad_words_ids"], eos_token_id=torch.tensor([2]))
        expected = processor(torch.zeros(20, 1, dtype=torch.long), LOGITS)
        suppressed = list(entries.get("suppress_tokens", []))
        expected[:, suppressed] = -torch.inf
        mine = filtered(params.override({"temperature": 1.0}), written=1)
        assert torch.equal(mine > -torch.inf, expected > -torch.inf)


def test_the_output_is_theirs(tmp_path: Any) -> None:
    torch.manual_seed(0)
    other = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=40, n_embd=24, n_layer=2, n_head=3)).eval()
    for parameter in other.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    other.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    (free,) = generate(model, [Request([3, 4], GenerationParams(12))])
    words = [[free.ids[0]], [free.ids[2], free.ids[3]], [free.ids[-1]]]
    settings = GenerationConfig(max_new_tokens=12, do_sample=False, pad_token_id=0, bad_words_ids=words)
    expected = other.generate(torch.tensor([[3, 4]]), generation_config=settings)[0, 2:].tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = Defaults.read({"bad_words_ids": words, "max_new_tokens": 12}).params
    (result,) = generate(model, [Request([3, 4], params)])
    assert list(result.ids) == expected
    assert list(free.ids) != expected


@pytest.mark.parametrize("banned", [-1, (3, -2), "a", (1.5,), True], ids=repr)
def test_what_is_no_id_is_refused(banned: Any) -> None:
    with pytest.raises(GenerationError, match="banned"):
        GenerationParams(banned=banned)


def test_a_token_must_be_left(tmp_path: Any) -> None:
    other = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=40, n_embd=24, n_layer=1, n_head=3))
    other.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    with pytest.raises(GenerationError, match="left to choose"):
        generate(model, [Request([3], GenerationParams(banned=tuple(range(VOCAB))))])
    some = tuple(range(5, VOCAB))
    with pytest.raises(GenerationError, match="min_new_tokens"):
        generate(model, [Request([3], GenerationParams(min_new_tokens=1, eos_ids=tuple(range(5)), banned=some))])
