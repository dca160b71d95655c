"""A model whose matrices several processes share out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from transpect.core.attention import Attention, NormOfAllHeads, NormOfEachHead
from transpect.core.model import Transformer
from transpect.core.parts import bodies, fewer_heads
from transpect.train.parallel.matrices.crossing import entering, joined_heads, leaving, own_heads
from transpect.train.parallel.matrices.plan import plan_of
from transpect.train.parallel.matrices.reading import share_out

SEED = 2**62


def share_matrices(model: Transformer, mesh: DeviceMesh) -> None:
    """Let each process of ``mesh`` keep and compute its part of every branch; in place.

    Every weight is a DTensor of ``mesh`` then, those that all have alike too, so that one optimizer and one norm serve
    all of them.
    """
    for module, shares in plan_of(model, mesh.get_local_rank(), mesh.size()).items():
        share_out(module, mesh, {name: (share.placement, share.read) for name, share in shares.items()})
    for module in model.modules():
        _fewer_heads(module, mesh)
    for tower in list(model.towers.values())[:-1]:  # which the cross-attention of the last one looks at in parts
        tower.register_forward_hook(lambda _, __, hidden: entering(hidden, mesh))
    for body in bodies(model):
        body.register_forward_pre_hook(lambda _, args: (entering(args[0], mesh), *args[1:]))
        body.register_forward_hook(lambda _, __, part: leaving(part, mesh))
        if _drops(body):
            draws = _DrawsOfParts(mesh.get_local_rank())
            body.register_forward_pre_hook(draws.begin)
            body.register_forward_hook(draws.end)


def _fewer_heads(module: nn.Module, mesh: DeviceMesh) -> None:
    """Let a module that counts heads count those of this process."""
    fewer_heads(module, mesh.get_local_rank(), mesh.size())
    if isinstance(module, NormOfAllHeads | NormOfEachHead):
        module.register_forward_pre_hook(lambda _, args: (joined_heads(args[0], mesh),))
        module.register_forward_hook(lambda _, __, normed: own_heads(normed, mesh))


def _drops(body: nn.Module) -> bool:
    within = (module for module in body.modules() if isinstance(module, nn.Dropout))
    return (isinstance(body, Attention) and body.dropout > 0.0) or any(module.p > 0.0 for module in within)


class _DrawsOfParts:
    """Within a branch each process drops other numbers, since it has other ones; between branches all drop the same.

    The generators are alike when a branch begins and go on alike when it has ended. What is drawn between is seeded by
    a number that all draw, so that a branch that is computed again draws the same again.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._kept: list[Tensor] = []

    def begin(self, body: nn.Module, _: object) -> None:
        """Draw by generators of this process."""
        if body.training:
            seed = int(torch.randint(SEED, (), device="cpu"))
            self._kept = [torch.get_rng_state()]
            if torch.cuda.is_available():
                self._kept.append(torch.cuda.get_rng_state())
            torch.manual_seed((seed + 0x9E3779B97F4A7C15 * (self._rank + 1)) % 2**63)

    def end(self, body: nn.Module, *_: object) -> None:
        """Draw by generators that are alike again."""
        if body.training:
            torch.set_rng_state(self._kept[0])
            if torch.cuda.is_available():
                torch.cuda.set_rng_state(self._kept[1])
