"""One row as the model will read it, and which of it is learnt: what is wrong there is seen before it is trained."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.text import Text

from transpect.data.batch import IGNORE, Batch
from transpect.data.loader import Batches
from transpect.data.prefetch import Prefetched
from transpect.text.tokenizer import Tokenizer

Run = tuple[bool, str]
"""Whether it is learnt, and its text."""


def show_sample(console: Console, batches: Batches | Prefetched, tokenizer: Tokenizer, count: int) -> None:
    """Print the first ``count`` documents of the row that comes next; where the batches stand does not change.

    On a terminal what is learnt is green and the rest dim; elsewhere it stands between ⟦ and ⟧.
    """
    place = batches.state()
    batch = next(batches)
    batches.load_state(place)
    colours = console.is_terminal
    how = "green" if colours else "between ⟦ ⟧"
    for runs, n_learnt, n_tokens in samples(batch, tokenizer, count):
        console.print(f"A sample: {n_tokens} tokens, of which {n_learnt} are learnt ({how}):", highlight=False)
        text = Text()
        for learnt, said in runs:
            shown = said if colours or not learnt else f"⟦{said}⟧"
            text.append(shown, "bold green" if learnt else "dim")
        console.print(text, soft_wrap=True)


def samples(batch: Batch, tokenizer: Tokenizer, count: int) -> list[tuple[list[Run], int, int]]:
    """Of each of the first documents of the first row: runs of text, tokens learnt, tokens."""
    segment = batch.tags.segment[0]
    real = batch.tags.position[0] >= 0
    found = []
    for number in range(count):
        own = real & (segment == number)
        ids, labels = batch.ids[0][own].tolist(), batch.labels[0][own].tolist()
        tokens = [(False, ids[0]), *((label != IGNORE, token) for label, token in zip(labels, ids[1:], strict=False))]
        if labels[-1] != IGNORE:
            tokens.append((True, labels[-1]))
        runs = [(learnt, tokenizer.decode([t for _, t in run])) for learnt, run in groupby(tokens, lambda one: one[0])]
        found.append((runs, sum(learnt for learnt, _ in tokens), len(tokens)))
    return found
