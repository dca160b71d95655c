"""A process that computes a part of a model's passes, as the first one says on its standard input.

python -m transpect.serve.tensor.partner
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transpect.base.errors import TranspectError
from transpect.core import CausalLM
from transpect.core.parts import keep_part
from transpect.decode.stepper import Read, Stepper
from transpect.lm import LanguageModel, load
from transpect.serve.tensor.group import Total, joined
from transpect.serve.tensor.orders import read, tensor


class Partner:
    """Follows orders. What a request does wrong the first process finds too, and says so; here it is passed over.

    Args:
        lm: of which there is a part here.
    """

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self._steps: dict[int, Stepper] = {}
        self._ahead: dict[int, tuple[ExitStack, Read]] = {}

    def follow(self, line: bytes) -> None:
        """One order."""
        order = read(line)
        with suppress(TranspectError):
            _ORDERS[order["order"]](self, order)

    def open(self, order: dict[str, Any]) -> None:
        """Steps of a request that begins; see `Stepper`."""
        for number in order["over"]:
            self._steps.pop(number, None)
        self._steps[order["number"]] = Stepper(
            self._lm.model, order["prompts"], horizons=order["horizons"], sources=order["sources"]
        )

    def prefill(self, order: dict[str, Any]) -> None:
        """See `Steps.prefill`."""
        self._steps[order["number"]].prefill(every=order["every"])

    def extend(self, order: dict[str, Any]) -> None:
        """See `Steps.extend`."""
        self._steps[order["number"]].extend(*_tokens(order))

    def forget(self, order: dict[str, Any]) -> None:
        """See `Steps.forget`."""
        self._steps[order["number"]].forget(torch.tensor(order["keep"]))

    def select(self, order: dict[str, Any]) -> None:
        """See `Steps.select`."""
        self._steps[order["number"]].select(order["rows"])

    def ahead(self, order: dict[str, Any]) -> None:
        """See `ReadsAhead.ahead`; `back` ends it."""
        stack = ExitStack()
        self._ahead[order["number"]] = stack, stack.enter_context(self._steps[order["number"]].ahead(order["layers"]))

    def go_ahead(self, order: dict[str, Any]) -> None:
        """Read with the first layers."""
        self._ahead[order["number"]][1](*_tokens(order))

    def back(self, order: dict[str, Any]) -> None:
        """Forget what they read."""
        self._ahead.pop(order["number"])[0].close()

    def call(self, order: dict[str, Any]) -> None:
        """An ability of a model that reads."""
        getattr(self._lm, order["name"])(order["inputs"], **order["options"])


_ORDERS: dict[str, Callable[[Partner, dict[str, Any]], None]] = {
    own.__name__: own
    for own in (
        Partner.open,
        Partner.prefill,
        Partner.extend,
        Partner.forget,
        Partner.select,
        Partner.ahead,
        Partner.go_ahead,
        Partner.back,
        Partner.call,
    )
}


def main() -> None:
    """Open the model, keep a part of it, say so, and follow orders until there are no more."""
    given = json.loads(sys.stdin.buffer.readline())
    lm = load(given["path"], "cpu", given["dtype"], runtime="torch")
    sums: list[Total] = []

    def total(term: Tensor) -> Tensor:
        return sums[0](term)

    keep_part(lm.model, given["rank"], given["size"], total)
    if isinstance(lm.model.config.head, CausalLM):
        lm.model.head = _NoLogits()  # the first process alone chooses tokens
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sums.append(joined(Path(given["file"]), given["rank"], given["size"]))
    partner = Partner(lm)
    with torch.inference_mode():
        for line in sys.stdin.buffer:
            partner.follow(line)


class _NoLogits(nn.Module):
    def forward(self, hidden: Tensor, *_: object) -> Tensor:
        return hidden[..., :0]


def _tokens(order: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    return torch.tensor(order["tokens"]), tensor(order["real"])


if __name__ == "__main__":
    main()
