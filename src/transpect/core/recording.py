"""Whether torch is recording a graph, in which numbers do not exist yet and so can't be looked at."""

import torch

__all__ = ["recording"]


def recording() -> bool:
    """True inside `torch.compile` and `torch.export`; checks that read a tensor's numbers are left out there."""
    return torch.compiler.is_compiling()
