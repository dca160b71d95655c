"""Attention by feature maps instead of a softmax, and the plain one of them.

Axes: B batch, T query, S key, H heads, K key-value heads, E head, m features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from transpect.base.errors import MaskError
from transpect.core.context import NO_CARRY, Carry
from transpect.core.kernels.autocast import as_it_is
from transpect.core.kernels.base import Demands, Kernel, Scoring, Sizes, refused
from transpect.core.kernels.sums import Sums, causal, everything
from transpect.core.recording import recording
from transpect.core.tags import Tags
from transpect.core.view import View
from transpect.core.visibility import Causal, Full


class SumsKernel(Kernel):
    """A kernel that keeps sums over keys, and no keys: under `Full` and `Causal`, O(T) time and O(m·E) memory."""

    def check(self, demands: Demands) -> None:
        check_no_scores(self, demands)
        if demands.visibility not in (Full(), Causal()):
            raise refused(
                self,
                "adds keys up, so a query sees all of them, or all up to its own",
                f"visibility {demands.visibility.kind}",
                "Use the rule `full` or `causal`, or a kernel that computes softmax attention.",
            )

    def build(self, sizes: Sizes) -> SumsWay:
        raise AssertionError("abstract")


def check_no_scores(kernel: Kernel, demands: Demands) -> None:
    """Refuse what changes a query's score with a key, for a kernel that has no such scores.

    Raises:
        ConfigError: a cap, dropout of weights, or positions that add to the scores.
    """
    if demands.soft_cap is not None:
        raise refused(kernel, "has no scores to cap", f"soft_cap={demands.soft_cap}", "Leave soft_cap out.")
    if demands.dropout:
        raise refused(
            kernel, "has no weights to drop", f"dropout={demands.dropout}", "Set the attention's dropout to 0."
        )
    if demands.scores != "nothing":
        raise refused(
            kernel,
            "has no scores that positions could add to",
            f"they add by {demands.scores}",
            "Use rope, sinusoidal, learned or no positions.",
        )


class SumsWay(nn.Module):
    """How a layer attends by sums; a child gives φ (`Features`)."""

    def log_query(self, query: Tensor) -> Tensor:
        """See `Features.log_query`."""
        raise AssertionError("abstract")

    def log_key(self, key: Tensor) -> Tensor:
        """See `Features.log_key`."""
        raise AssertionError("abstract")

    def scaled(self, x: Tensor, scale: float) -> Tensor:
        """Queries or keys as φ takes them, where q·k is to be scaled."""
        return x

    def attend(self, query: Tensor, key: Tensor, value: Tensor, view: View, scoring: Scoring) -> Tensor:
        """See `Way.attend`; all keys are there."""
        return self.go_on(query, key, value, view, NO_CARRY, scoring.scale)

    def go_on(self, query: Tensor, key: Tensor, value: Tensor, view: View, carry: Carry, scale: float) -> Tensor:
        """Attend to what was carried here and to these keys, and carry on: [B, H, T, E].

        Raises:
            MaskError: under `Causal`, real positions do not increase along a row.
        """
        kept, tags = carry.take(), view.query
        past = None if kept is None else Sums(*kept)
        hidden = None if view.key.start is not None else view.key.position < 0
        attend = everything if view.rule == Full() else causal
        if attend is causal:
            check_order(view.key)
        with as_it_is(query.device):  # autocast would have the sums in half precision
            out, sums = attend(self, self.scaled(query, scale), self.scaled(key, scale), value, hidden, past)
        carry.keep(tuple(sums))
        out = out.to(query.dtype)
        return out if tags.start is not None else out.masked_fill(tags.position[:, None, :, None] < 0, 0.0)


def check_order(key: Tags) -> None:
    """Sums are taken by columns, which must be the order of positions.

    Raises:
        MaskError: it is not, as in packed documents.
    """
    if key.start is not None or recording() or not key.shape[1]:
        return
    before = key.position.cummax(1).values[:, :-1]
    if bool(((key.position[:, 1:] >= 0) & (key.position[:, 1:] <= before)).any()):
        raise MaskError(
            "attention by sums goes along a row, so its positions must increase: they do not in packed documents",
            remedy="Give each document a row of its own, or choose a kernel of softmax attention.",
        )


@dataclass(frozen=True)
class Linear(SumsKernel, kind="linear"):
    """out_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i)·Σ_j φ(k_j), φ(x) = elu(x) + 1 (Katharopoulos et al. 2020, §3.2.1).

    Another function than softmax attention; φ takes queries and keys as they are, so there is no q·k to scale.
    """

    scales: ClassVar[bool] = False

    def build(self, sizes: Sizes) -> LinearWay:
        return LinearWay()


class LinearWay(SumsWay):
    def log_query(self, query: Tensor) -> Tensor:
        # log(elu(x) + 1): x below 0, log(1 + x) above
        return query.clamp(max=0) + query.relu().log1p()

    def log_key(self, key: Tensor) -> Tensor:
        return self.log_query(key)
