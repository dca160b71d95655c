"""The cache of sums: it goes on as the dense cache does and as no cache does, in one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from transpect.base.errors import ConfigError, MaskError
from transpect.cache import DenseCache, SumsCache, kinds
from transpect.core import (
    AttentionConfig,
    Causal,
    CausalLM,
    Full,
    ModelConfig,
    OtherLayers,
    StackConfig,
    Tags,
    Transformer,
)
from transpect.core.kernels import Kernel, Linear, Performer, Sdpa
from transpect.core.positions import Learned, NoPosition, Position, Rope, Sinusoidal
from transpect.decode import GenerationParams, Request, generate
from transpect.decode.stepper import Stepper

KERNELS: dict[str, Kernel] = {"linear": Linear(), "performer": Performer(features=12)}
POSITIONS: dict[str, Position] = {"none": NoPosition(), "sin": Sinusoidal(), "learned": Learned(), "rope": Rope()}
VOCAB, HORIZON = 19, 200


def build(kernel: str = "linear", positions: str = "rope", *, encodes: bool = False) -> Transformer:
    stack = StackConfig(
        n_layers=2,
        attention=AttentionConfig(n_heads=4, n_kv_heads=2, kernel=KERNELS[kernel]),
        positions=POSITIONS[positions],
        visibility=Causal(),
    )
    head = CausalLM(tied=False)
    config = ModelConfig(vocab_size=VOCAB, d_model=16, context_length=HORIZON, decoder=stack, head=head)
    if encodes:
        crossing = replace(stack, steps=(("self",), ("cross",), ("ffn",)), cross=AttentionConfig(n_heads=4))
        config = replace(config, encoder=replace(stack, visibility=Full()), decoder=crossing)
    model = Transformer(config).eval().double()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(parameter + 0.1 * noise if noise.ndim == 1 else noise * (2.0 if "token" in name else 0.7))
    return model


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def ragged(lengths: list[int], width: int) -> Tags:
    return Tags.padded(torch.arange(width) >= width - torch.tensor(lengths)[:, None])


def anew(model: Transformer, rows: list[Tensor]) -> Tensor:
    """The last logits of each row, computed alone and without a cache: [B, V]."""
    return torch.stack([model(row[None])[0, -1] for row in rows])


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max()) <= 1e-10


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [1, 1, 0, 2, 1]], ids=str)
@torch.no_grad()
def test_select_keeps_repeats_and_reorders(kernel: str, positions: str, rows: list[int]) -> None:
    model, ids = build(kernel, positions), tokens(3, 6)
    cache, lengths = SumsCache(), [6, 2, 5]
    model(ids, tags=ragged(lengths, 6), cache=cache)
    cache.select(torch.tensor(rows))
    cache.compact()
    kept = [ids[i, 6 - lengths[i] :] for i in rows]
    for step in range(3):
        last = tokens(len(rows), 1, seed=step)
        kept = [torch.cat([row, new]) for row, new in zip(kept, last, strict=True)]
        assert close(model(last, cache=cache)[:, -1], anew(model, kept))


@torch.no_grad()
def test_forks_go_their_own_ways() -> None:
    model, ids, cache = build(), tokens(2, 5), SumsCache()
    model(ids, cache=cache)
    caches, rows = [cache, cache.fork(), cache.fork()], [ids, ids, ids]
    for step in range(3):
        for i in range(3):
            more = tokens(2, step + 1, seed=10 * i + step)
            out = model(more, cache=caches[i])
            rows[i] = torch.cat([rows[i], more], 1)
            assert close(out[:, -1], anew(model, list(rows[i])))
    caches[2].select(torch.tensor([1]))
    assert [cache.length for cache in caches] == [11, 11, 11]
    assert close(model(more, cache=caches[0])[:, -1], anew(model, list(torch.cat([rows[0], more], 1))))


@torch.no_grad()
def test_it_can_forget_all_and_not_some() -> None:
    model, ids, cache = build(), tokens(2, 5), SumsCache()
    model(ids, cache=cache)
    cache.crop(7)
    cache.crop(5)
    with pytest.raises(ConfigError, match=r"can't forget some columns.*crop\(3\) of 5.*fork"):
        cache.crop(3)
    assert close(model(ids[:, :2], cache=cache.fork())[:, -1], anew(model, list(torch.cat([ids, ids[:, :2]], 1))))
    cache.crop(0)
    assert (cache.length, cache.next_position) == (0, 0)
    other = tokens(3, 4)
    assert close(model(other, cache=cache)[:, -1], anew(model, list(other)))


@torch.no_grad()
def test_its_size_is_that_of_one_token() -> None:
    def numbers(cache: SumsCache) -> int:
        return sum(part.numel() for sums in cache._sums.values() for part in sums)

    for kernel, features in (("linear", 4), ("performer", 12)):
        model, cache, sizes = build(kernel), SumsCache(), []
        for length in (1, 9, 140, 1):
            model(tokens(2, length), cache=cache)
            sizes.append(numbers(cache))
        assert sizes == [2 * 2 * 2 * features * (1 + 4 + 1)] * 4  # layers · B · K · m · (peak, v, 1)
        assert cache.length == 151


@torch.no_grad()
def test_softmax_attention_finds_no_keys_there() -> None:
    config = build().config
    model = Transformer(config.with_kernel(Sdpa()))
    with pytest.raises(ConfigError, match=r"holds no keys.*DenseCache"):
        model(tokens(1, 3), cache=SumsCache())


@torch.no_grad()
def test_it_goes_on_behind_what_it_holds() -> None:
    model, cache = build(), SumsCache()
    model(tokens(2, 4), cache=cache)
    for tags in (Tags.dense(2, 2, start=3), Tags.of(torch.tensor([[4, 5], [2, 5]]))):
        with pytest.raises(MaskError, match="behind what it holds"):
            model(tokens(2, 2), tags=tags, cache=cache)
    model(tokens(2, 2), tags=Tags.of(torch.tensor([[-1, 4], [-1, -1]])), cache=cache)
    assert torch.as_tensor(cache.next_position).tolist() == [[5], [4]]


@torch.no_grad()
def test_an_empty_cache_can_be_selected_forked_cropped_and_compacted() -> None:
    cache = SumsCache()
    cache.select(torch.tensor([0]))
    cache.compact()
    cache.crop(0)
    assert cache.fork().length == cache.length == cache.next_position == 0


# decoding


def requests_of(model: Transformer, temperature: float) -> list[Request]:
    params = GenerationParams(max_new_tokens=9, temperature=temperature, ignore_eos=True)
    return [
        Request(
            tokens(1, length, seed=length)[0].tolist(),
            replace(params, seed=seed, max_new_tokens=4 + 2 * seed),
            tokens(1, 3 + seed, seed=7)[0].tolist() if model.config.encoder else None,
        )
        for seed, length in enumerate((12, 1, 7, 10))
    ]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("encodes", [False, True], ids=["decoder", "encoder-decoder"])
@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampling"])
def test_decoding_is_the_same_with_either_cache_and_alone(
    kernel: str, encodes: bool, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch padded on the left, whose rows end one by one, prompts in pieces or whole."""
    model = build(kernel, encodes=encodes)
    requests = requests_of(model, temperature)
    alone = [result for request in requests for result in generate(model, [request])]
    for request, result in zip(requests, alone, strict=True):
        assert result.logprobs == pytest.approx(uncached(model, request, result.ids), abs=1e-9)
    for cache, chunks in ((SumsCache, (1, 3, 5, None)), (DenseCache, (3, None))):
        monkeypatch.setattr(kinds, "SumsCache", cache)
        for chunk in chunks:
            for result, expected in zip(generate(model, requests, prefill_chunk=chunk), alone, strict=True):
                assert result.ids == expected.ids
                assert result.logprobs == pytest.approx(expected.logprobs, abs=1e-9)


@torch.no_grad()
def uncached(model: Transformer, request: Request, chosen: Sequence[int]) -> list[float]:
    """The log-probability of each of these tokens, everything computed anew for each; greedy ones are the best."""
    ids, logprobs = list(request.prompt), []
    options = {} if request.source is None else {"source": model.encode(torch.tensor([list(request.source)]))}
    for token in chosen:
        row = model(torch.tensor([ids]), **options)[0, -1].log_softmax(-1)
        assert request.params.temperature or token == int(row.argmax())
        logprobs.append(float(row[token]))
        ids.append(token)
    return logprobs


def test_the_engine_keeps_sums_where_every_layer_does() -> None:
    linear = build().config
    assert linear.last.keeps_sums
    mixed = replace(
        linear.last, others=(OtherLayers(at=(1,), attention=AttentionConfig(n_heads=4, n_kv_heads=2, kernel=Sdpa())),)
    )
    assert not mixed.keeps_sums
    for config, kind in ((linear, SumsCache), (replace(linear, decoder=mixed), DenseCache)):
        model = Transformer(config).eval()
        steps = Stepper(model, [[1, 2, 3], [4]], horizons=[5, 5])
        assert type(steps._cache) is kind
        with torch.no_grad():
            assert float((steps.prefill()[1] - model(torch.tensor([[4]]))[0, -1]).abs().max()) <= 1e-5
