"""A walk through a network as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from transpect.base.i18n import tr
from transpect.cli.screen import table
from transpect.cli.walk import Grid, Guess, Walk

__all__ = ["walk_page"]

FIRST = 6  # numbers of a vector that fit a line
GUESSES = 4  # a layer


def walk_page(walked: Walk, text: str, head_dim: int, exact: Mapping[int, float]) -> Iterator[str | Table]:
    """The sections in order, each a sentence and a table.

    Args:
        walked: what passed.
        text: the text that was read.
        head_dim: E of the model.
        exact: the true probability of next tokens by id; what is not in it is not known.
    """
    attention = walked.attention
    yield tr("demo.tokens", width=len(walked.embeddings[0]))
    yield _tokens(walked)
    yield tr("demo.scores", layer=attention.layer + 1, head=attention.head + 1, head_dim=head_dim)
    yield _square(walked.tokens, attention.scores, attention.weights)
    yield tr("demo.weights")
    yield _square(walked.tokens, attention.weights, attention.weights)
    yield tr("demo.norms")
    yield _norms(walked)
    yield tr("demo.lens", text=text)
    yield _lens(walked)
    yield tr("demo.guesses")
    yield _guesses(walked.guesses, exact)


def _tokens(walked: Walk) -> Table:
    rows = table(*(tr(f"demo.column.{name}") for name in ("token", "id", "vector")), "‖x‖", numbers=(1, 3))
    for token, number, vector, norm in zip(walked.tokens, walked.ids, walked.embeddings, walked.norms[0], strict=True):
        rows.add_row(token, str(number), "  ".join(f"{x:+.2f}" for x in vector[:FIRST]) + "  …", f"{norm:.2f}")
    return rows


def _square(tokens: Sequence[str], values: Grid, weights: Grid) -> Table:
    """Query tokens down, key tokens across; what a token does not see (its weight is 0) is left blank."""
    rows = table("", *tokens, numbers=tuple(range(1, len(tokens) + 1)))
    for token, row, seen in zip(tokens, values, weights, strict=True):
        rows.add_row(token, *(f"{x:.2f}" if weight else "" for x, weight in zip(row, seen, strict=True)))
    return rows


def _norms(walked: Walk) -> Table:
    rows = table(tr("demo.column.layer"), *walked.tokens, numbers=tuple(range(1, len(walked.tokens) + 1)))
    for layer, norms in enumerate(walked.norms):
        rows.add_row(str(layer), *(f"{norm:.1f}" for norm in norms))
    return rows


def _lens(walked: Walk) -> Table:
    headings = [tr("demo.column.guess", rank=rank) for rank in range(1, GUESSES + 1)]
    rows = table(tr("demo.column.layer"), *headings)
    for layer, guesses in enumerate(walked.lens):
        rows.add_row(str(layer), *(f"{guess.token} {guess.probability:.2f}" for guess in guesses[:GUESSES]))
    return rows


def _guesses(guesses: Sequence[Guess], exact: Mapping[int, float]) -> Table:
    rows = table(*(tr(f"demo.column.{name}") for name in ("token", "model", "exact")), "", numbers=(1, 2))
    for guess in guesses:
        true = exact.get(guess.id)
        bar = "█" * round(30 * guess.probability)
        rows.add_row(guess.token, f"{guess.probability:.4f}", "—" if true is None else f"{true:.4f}", bar)
    return rows
