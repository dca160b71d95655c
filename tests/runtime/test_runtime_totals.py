"""ln Σ exp of long rows: as PyTorch's in float64, each row by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transpect.runtime.totals import log_totals


@pytest.mark.parametrize("size", [1, 7, 1024, 5000, 49153])
def test_totals(size: int) -> None:
    logits = torch.randn(3, size, generator=torch.Generator().manual_seed(size)) * 8
    logits[1, ::2] -= 300
    logits[2, 1:] = -torch.inf
    found = torch.from_numpy(log_totals(logits.numpy()))
    assert torch.allclose(found, logits.double().logsumexp(-1).float(), atol=2e-6, rtol=1e-6)
    for row in range(3):
        assert log_totals(logits[row : row + 1].numpy())[0] == found[row]
    assert (log_totals(logits.repeat(1, 2)[:, :size].numpy()) == found.numpy()).all(), "rows that do not lie together"


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_what_is_not_finite_is_told(broken: float) -> None:
    logits = np.zeros((3, 50), np.float32)
    logits[1, 17], logits[2] = broken, -np.inf
    assert np.isnan(log_totals(logits)).tolist() == [False, True, True]
