"""Short prompts are read by the program and long ones by PyTorch, row by row, and nobody can tell."""

from __future__ import annotations

import pytest
import torch

from transpect.core import AttentionConfig, Glu, ModelConfig, StackConfig, Transformer
from transpect.decode import GenerationParams, Request, generate
from transpect.decode.program_steps import SHORT, ProgramSteps
from transpect.decode.stepper import Stepper
from transpect.runtime import products


def model() -> Transformer:
    stack = StackConfig(n_layers=2, attention=AttentionConfig(n_heads=2), ffn=Glu(d_ff=24))
    made = Transformer(ModelConfig(37, 16, 128, decoder=stack)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0, 0.5, generator=torch.Generator().manual_seed(parameter.numel()))
    return made


LENGTHS = [(3, 50, 7, 40), (60, 2), (5, 6), (50, 60), (SHORT, SHORT + 1)]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("every", [False, True])
def test_logits_and_hidden_are_those_of_the_model(lengths: tuple[int, ...], every: bool) -> None:
    own = model()
    prompts = [[(7 * n + k) % 37 for k in range(length)] for n, length in enumerate(lengths)]
    horizons = [length + 5 for length in lengths]
    steps = ProgramSteps(Stepper(own, prompts, horizons=horizons), max(horizons), 0)
    plain = Stepper(own, prompts, horizons=horizons)
    assert torch.allclose(steps.prefill(every=every), plain.prefill(every=every), atol=1e-5)
    assert torch.allclose(steps.hidden, plain.hidden, atol=1e-5)
    token = torch.arange(len(lengths))
    for _ in range(3):
        assert torch.allclose(steps.advance(token), plain.advance(token), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("quick", [False, True])
def test_bfloat16_is_read_by_what_is_quick(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "multiplies_bfloat16", lambda: quick)
    prompt = [n % 37 for n in range(50)]
    first = Stepper(model().to(torch.bfloat16), [prompt], horizons=[55])
    exact = model()
    exact.load_state_dict(first.model.state_dict())
    steps = ProgramSteps(first, 55, 0)
    logits = steps.prefill()
    by_torch = first.cache.length > 0
    assert by_torch == quick
    near = torch.allclose(logits, exact(torch.tensor([prompt]))[:, -1], atol=1e-4)
    assert near == (not quick)  # a program rounds the weights alone


def test_tokens_do_not_depend_on_the_batch() -> None:
    own = model()
    requests = [
        Request([(11 * n + k) % 37 for k in range(length)], GenerationParams(max_new_tokens=6, temperature=1.0, seed=n))
        for n, length in enumerate((3, 50, 7, 33, 32, 1))
    ]

    def written(some: list[Request]) -> list[list[int]]:
        return [list(result.ids) for result in generate(own, some, batch_size=8, runtime="program")]

    assert written(requests) == [written([one])[0] for one in requests]
