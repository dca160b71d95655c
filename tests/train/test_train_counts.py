"""Each objective, however its labels are spread: parts with 10 and 2 labels, or with 5, 1 and 0, give the gradient of
the one large batch, also where a process must read a part that has none.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.train.ways import ways
from torch import Tensor, nn

from transpect.data.batch import IGNORE, Batch
from transpect.train import Recipe
from transpect.train.criteria import TokenCrossEntropy
from transpect.train.criteria.base import mean_loss, total_counts
from transpect.train.job import Job, build
from transpect.train.parallel.shares import share

FAST = ("causal, adamw", "electra")
NAMES = (
    *("causal, adamw", "masked, adamw", "masked n-grams", "prefix", "seq2seq", "spans", "denoising", "electra"),
    *("classes", "tagged words", "chat", "preferences", "a teacher", "causal in buckets"),
)
COUNTS = [(10, 2), (5, 1, 0)]


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], Recipe]]:
    """Without dropout."""
    return ways(tmp_path_factory.mktemp("ways"), dropout=0.0)


def thinned(batch: Batch, counts: tuple[int, ...]) -> Batch:
    """At most so many labels in each row; a label of a row as a whole stays."""
    if batch.labels.ndim == 1:
        return batch
    number = (batch.labels != IGNORE).cumsum(1)
    return replace(batch, labels=batch.labels.masked_fill(number > torch.tensor(counts)[:, None], IGNORE))


def gradient(job: Job, parts: list[Batch]) -> tuple[dict[str, Tensor], float]:
    """What processes have together, each of which reads one part."""
    job.model.train().zero_grad(set_to_none=True)
    totals = total_counts(job.criterion.counts(part) for part in parts)
    loss = torch.zeros(())
    for part in parts:
        one = mean_loss(job.criterion.training(job.model, part).losses, totals)
        one.backward()
        loss += one.detach()
    return {name: w.grad.clone() for name, w in job.model.named_parameters() if w.grad is not None}, float(loss)


def norm_of(gradients: dict[str, Tensor]) -> float:
    """Of all of them together."""
    return float(torch.stack([grad.norm() for grad in gradients.values()]).norm())


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_parts_have_the_gradient_of_the_whole(name: str, recipes: dict[str, Callable[[], Recipe]]) -> None:
    for counts in COUNTS:
        recipe = recipes[name]()
        job = build(replace(recipe, train=replace(recipe.train, batch_size=len(counts))))
        for module in job.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # of a head that the objective brings along
        batch = thinned(next(job.batches), counts)
        parts = [part for rank in range(len(counts)) for part in share([batch], rank, len(counts))]
        assert len(parts) == len(counts)
        if batch.labels.ndim == 2 and counts[-1] == 0:
            assert not any(job.criterion.counts(parts[-1])[:1]) or name == "preferences"
        for smoothing in (0.0, 0.1) if isinstance(job.criterion, TokenCrossEntropy) else (None,):
            one = job if smoothing is None else replace(job, criterion=TokenCrossEntropy(smoothing))
            (expected, its_loss), (found, loss) = gradient(one, [batch]), gradient(one, parts)
            assert loss == pytest.approx(its_loss, rel=1e-6)
            norm = max(norm_of(expected), norm_of(gradient(one, parts[:1])[0]))  # what parts give may nearly cancel
            assert norm > 0 and found.keys() == expected.keys()
            for weight, grad in expected.items():
                assert float((found[weight] - grad).norm()) <= 2e-6 * norm, weight


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_a_process_without_labels_adds_nothing_and_no_nan(name: str, recipes: dict[str, Callable[[], Recipe]]) -> None:
    job = build(recipes[name]())
    batch = next(job.batches)
    if batch.labels.ndim == 1 or name == "preferences":
        return  # each row has its label
    empty = replace(batch, labels=torch.full_like(batch.labels, IGNORE))
    losses = job.criterion.training(job.model.train(), empty).losses
    losses[0].backward()
    assert float(losses[0].detach()) == 0.0
    assert all(not weight.grad.any() for weight in job.model.parameters() if weight.grad is not None)
