"""What a run may run on: rows for GPUs, and this machine, measured.

Figures are the vendors' data sheets: memory, its bandwidth, dense matrix products (no sparsity), and links of one
device in one direction. Prices are list prices of an hour on demand at large clouds in 2025, to compare by; give your
own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from transpect.base.codec import did_you_mean
from transpect.base.errors import ConfigError
from transpect.base.memory import available_memory
from transpect.train.planning.parts import WIDE, Product, Scores
from transpect.train.precision import Precision

if TYPE_CHECKING:
    import torch

GIB: Final = 1 << 30
REACHED: Final = 0.6
"""Share of a data sheet's peak that large matrix products reach in training frameworks; Megatron-LM reports 44–52 % of
it for whole updates (Narayanan et al. 2021, table 1), in which other work is contained."""


class Device(Protocol):
    """What says how long a piece of work takes, in seconds."""

    def product(self, product: Product, precision: Precision) -> float:
        """One matrix product, forward."""

    def scores(self, scores: Scores, precision: Precision) -> float:
        """Attention, forward and backward."""

    def moving(self, amount: int, unit: int) -> float:
        """``amount`` bytes read and written by operations on tensors of ``unit`` bytes."""

    def calls(self, count: int) -> float:
        """Starting so many operations."""


@dataclass(frozen=True)
class Hardware:
    """A kind of device.

    Attributes:
        name: e.g. ``A100``.
        memory: bytes.
        bandwidth: of the memory, bytes a second.
        peak: multiplications and additions a second, by precision.
        link: bytes a second to another device of the same node, one direction.
        network: bytes a second to another node, a device.
        per_node: devices of a node.
        price: US dollars an hour.
        launch: seconds to start an operation.
        gpu: whether it is one: nothing is computed again unless asked, and logits are more at a time.
    """

    name: str
    memory: int
    bandwidth: float
    peak: dict[str, float] = field(hash=False)
    link: float = 0.0
    network: float = 0.0
    per_node: int = 1
    price: float = 0.0
    launch: float = 6e-6
    gpu: bool = True

    def product(self, product: Product, precision: Precision) -> float:
        """The longer of computing and moving (Williams et al. 2009, "Roofline")."""
        low = WIDE if precision == "fp32" else 2
        moved = (product.m * product.k + product.k * product.n + product.m * product.n) * low * product.times
        return max(product.flops / (self.peak[precision] * REACHED), moved / self.bandwidth)

    def scores(self, scores: Scores, precision: Precision) -> float:
        """Forward once, backward twice and the scores once more; at half the rate of large products."""
        flops = scores.flops * 3.5
        pairs = 0 if scores.fused else scores.rows * scores.heads * scores.queries * scores.keys * WIDE * 12
        return flops / (self.peak[precision] * REACHED / 2) + pairs / self.bandwidth

    def moving(self, amount: int, unit: int) -> float:
        """At the memory's rate."""
        return amount / self.bandwidth

    def calls(self, count: int) -> float:
        """As a host that starts them one after another."""
        return count * self.launch


def _gpu(
    name: str, memory: int, bandwidth: float, fp32: float, bf16: float, link: float, network: float, price: float
) -> Hardware:
    """GiB, GB/s, 10¹² operations a second (float32 as TF32 is not, the default of torch), GB/s, GB/s, $."""
    peak = {"fp32": fp32 * 1e12, "bf16": bf16 * 1e12, "fp16": bf16 * 1e12}
    return Hardware(name, memory * GIB, bandwidth * 1e9, peak, link * 1e9, network * 1e9, 8, price)


HARDWARE: Final = {
    row.name: row
    for row in (
        _gpu("T4", 16, 320, 8.1, 65, 8, 1, 0.53),
        _gpu("V100", 32, 900, 15.7, 125, 150, 3, 3.06),
        _gpu("A10G", 24, 600, 31.2, 70, 16, 3, 1.21),
        _gpu("L4", 24, 300, 30.3, 121, 16, 3, 0.81),
        _gpu("L40S", 48, 864, 91.6, 362, 32, 6, 1.86),
        _gpu("RTX3090", 24, 936, 35.6, 71, 16, 1, 0.25),
        _gpu("RTX4090", 24, 1008, 82.6, 165, 16, 1, 0.45),
        _gpu("A100-40GB", 40, 1555, 19.5, 312, 300, 12, 3.67),
        _gpu("A100", 80, 2039, 19.5, 312, 300, 25, 5.07),
        _gpu("H100", 80, 3350, 67, 989, 450, 50, 6.98),
        _gpu("H200", 141, 4800, 67, 989, 450, 50, 7.91),
        _gpu("B200", 180, 8000, 75, 2250, 900, 50, 14.2),
    )
}


def hardware_named(text: str) -> tuple[int, Hardware]:
    """``8xA100`` or ``A100``: how many, and of which kind.

    Raises:
        ConfigError: another form, or a kind of which there is no row.
    """
    match = re.fullmatch(r"(?:(\d+)\s*[x×*]\s*)?([\w-]+)", text.strip())
    rows = {name.lower(): row for name, row in HARDWARE.items()}
    if match is None or int(match[1] or 1) < 1:
        raise ConfigError("--gpus must be a number and a kind", value=text, remedy="Write e.g. 8xA100.")
    if match[2].lower() not in rows:
        near = did_you_mean(match[2], HARDWARE)
        raise ConfigError(
            "there is no row for this kind of GPU", value=match[2], remedy=f"{near} Known: {', '.join(HARDWARE)}."
        )
    return int(match[1] or 1), rows[match[2].lower()]


def bytes_named(text: str) -> int:
    """``24GB``, ``24GiB``, ``512MB``: bytes.

    Raises:
        ConfigError: another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError("a size must be a number and a unit", value=text, remedy="Write e.g. 24GB or 512MiB.")
    base = 1024 if match[3] else 1000
    size = int(float(match[1]) * base ** ("KMGT".index(match[2].upper()) + 1))
    if size < 1:
        raise ConfigError("a size must be above 0", value=text)
    return size


class ThisMachine:
    """The CPU that this runs on: each kind of work is tried, at the sizes that are asked for, and remembered.

    Args:
        threads: of torch, as they are set.
    """

    BEST_OF = 3
    MOST = 4e9
    """Operations of a product that is tried whole; of a larger one fewer rows are."""

    def __init__(self) -> None:
        self._known: dict[object, float] = {}

    def product(self, product: Product, precision: Precision) -> float:
        import torch

        rows = max(1, min(product.m, int(self.MOST // (2 * product.k * product.n))))
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16

        def prepare() -> Callable[[], object]:
            a, b = torch.randn(rows, product.k).to(dtype), torch.randn(product.n, product.k).to(dtype)
            return lambda: torch.nn.functional.linear(a, b)

        seconds = self._time(("product", rows, product.k, product.n, precision), prepare)
        return seconds * product.m / rows * product.times

    def scores(self, scores: Scores, precision: Precision) -> float:
        import torch

        rows = max(1, min(scores.rows, int(self.MOST // max(1, scores.flops // scores.rows))))
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16

        def prepare() -> Callable[[], object]:
            def heads(length: int) -> torch.Tensor:
                return torch.randn(rows, scores.heads, length, scores.head_dim).to(dtype).requires_grad_()

            query, key, value = heads(scores.queries), heads(scores.keys), heads(scores.keys)
            dropout, causal = (0.0 if scores.fused else 0.1), scores.queries == scores.keys
            attend = torch.nn.functional.scaled_dot_product_attention

            def run() -> None:
                out = attend(query, key, value, None, dropout, is_causal=causal)
                torch.autograd.backward(out.sum())

            return run

        return self._time(("scores", replace(scores, rows=rows), precision), prepare) * scores.rows / rows

    def moving(self, amount: int, unit: int) -> float:
        import torch

        numbers = max(1, min(unit, 256 << 20) // WIDE)

        def prepare() -> Callable[[], object]:
            a, b = torch.ones(numbers), torch.ones(numbers)
            return lambda: a * b

        return self._time(("moving", numbers), prepare) * amount / (3 * WIDE * numbers)

    def calls(self, count: int) -> float:
        import torch

        def prepare() -> Callable[[], object]:
            a = torch.ones(1, requires_grad=True)
            return lambda: torch.autograd.backward(a * a)

        return self._time("call", prepare) / 2 * count

    def _time(self, name: object, prepare: Callable[[], Callable[[], object]]) -> float:
        if name not in self._known:
            run = prepare()
            run()
            self._known[name] = min(_timed(run) for _ in range(self.BEST_OF))
        return self._known[name]


def _timed(run: Callable[[], object]) -> float:
    begun = perf_counter()
    run()
    return perf_counter() - begun


def gemm_peak(device: torch.device, precision: Precision) -> float:
    """Multiplications and additions a second of a large matrix product on a device, the best of some."""
    import torch

    side = 1024 if device.type == "cpu" else 8192
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    a, b = (torch.ones(side, side, device=device, dtype=dtype) for _ in range(2))

    def multiply() -> None:
        product = a @ b
        if device.type != "cpu":
            product[0, 0].item()  # waits for the device

    multiply()
    return 2 * side**3 / min(_timed(multiply) for _ in range(ThisMachine.BEST_OF))


def this_machine() -> Hardware:
    """This machine's row: its memory, and what a large product and a large tensor show."""
    import torch

    tried, cpu = ThisMachine(), torch.device("cpu")
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    peak: dict[str, float] = {own: gemm_peak(cpu, own) for own in precisions}
    bandwidth = 1e9 / tried.moving(10**9, 128 << 20)
    return Hardware("this machine", available_memory(), bandwidth, peak, launch=tried.calls(1), gpu=False)
