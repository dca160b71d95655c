"""How far rounding alone may carry a model's outputs: measured on the model itself.

A way that is right differs from the reference by rounding alone. What rounding does depends on the model and on the
text: where attention stands on an edge, a hundredth of a percent becomes a percent. So the reference is run again
with its own rounding errors put in by hand: the result of every linear map, norm and lookup is multiplied by 1 +
ε·noise, ε = 2^-30. Its outputs then move by ``unrest · ε``; to first order, arithmetic of precision u moves them by
``unrest · u``. The tolerance, for each sample and each output, is

    max |Δ| ≤ slack · u · unrest

- float32 (u = 2^-24) and float64 (2^-53): slack 64. Sums of many terms round many times, and each machine adds up in
  an order of its own. Measured on published and random models of 1 to 30 layers: up to 14.
- float16 (2^-11), bfloat16 (2^-8): slack 4, for sums are kept in float32 and round once. Measured: up to 1.
- llama.cpp: slack 4 too. It rounds what it multiplies: to float16 where the weights are float16, to 8 bits where they
  are quantised (2^-8). Measured: up to 1.5. Its float32 is held to float16's, as it reads some functions from tables of
  float16.

A mistake moves the outputs by a share of themselves that has nothing to do with u: a position that is off by one, a
key that leaks in from padding, a bias that is left out are 10^2 to 10^5 times this tolerance in float32. In bfloat16
and on quantised weights small ones can hide below it; so the dtype is float32 unless another is asked for.

Axes: B batch, T tokens, D model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transpect.core import Transformer
from transpect.core.norms import OffsetRMSNorm
from transpect.interop.peers import Reading, Sample
from transpect.verify import ways

__all__ = ["GGUF_PRECISIONS", "PRECISIONS", "unrest"]

FINE, COARSE = 64.0, 4.0
PRECISIONS = {
    torch.float64: FINE * 2.0**-53,
    torch.float32: FINE * 2.0**-24,
    torch.float16: COARSE * 2.0**-11,
    torch.bfloat16: COARSE * 2.0**-8,
}
"""slack · u of each dtype."""
GGUF_PRECISIONS = {"plain": COARSE * 2.0**-11, "quantised": COARSE * 2.0**-8}
"""slack · u of llama.cpp, by what the weights are."""
EPSILON = 2.0**-30
DRAWS = 2
WIDTH = 3.0**0.5  # a uniform noise of variance 1
MAPS = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm, OffsetRMSNorm)


def unrest(
    reference: Transformer, samples: Sequence[Sample], wanted: Sequence[Reading], seed: int
) -> list[dict[str, float]]:
    """For each sample and each output, by how much it moves, in units of the errors that were put in.

    At least the output's own root mean square, for it is rounded itself.

    Args:
        reference: in float64.
        samples: what it reads.
        wanted: what it says of them undisturbed.
        seed: of the noise.
    """
    moved = [{name: float(tensor.square().mean().sqrt()) for name, tensor in reading.items()} for reading in wanted]
    for draw in range(DRAWS):
        with _disturbed(reference, torch.Generator(reference.token.weight.device).manual_seed(seed + draw)):
            found = ways.alone(reference, samples)
        for least, noisy, quiet in zip(moved, found, wanted, strict=True):
            for name in least:
                shift = float((noisy[name] - quiet[name]).nan_to_num().abs().max()) / EPSILON
                least[name] = max(least[name], shift)
    return moved


@contextmanager
def _disturbed(model: nn.Module, generator: torch.Generator) -> Iterator[None]:
    def disturb(_module: nn.Module, _inputs: object, out: Tensor) -> Tensor:
        noise = torch.empty(out.shape, dtype=torch.float32, device=out.device).uniform_(
            -WIDTH, WIDTH, generator=generator
        )
        return out * (1 + EPSILON * noise.double())

    hooks = [module.register_forward_hook(disturb) for module in model.modules() if isinstance(module, MAPS)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
