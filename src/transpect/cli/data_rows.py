"""Rows of a batch on a terminal: what is read, and what is to be predicted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
from rich.text import Text

from transpect.base.i18n import tr
from transpect.cli.screen import console
from transpect.data.batch import IGNORE, Batch
from transpect.text import Tokenizer

__all__ = ["print_rows"]


def print_rows(batch: Batch, tokenizer: Tokenizer, classes: Sequence[str] = (), *, as_json: bool) -> None:
    """Print each row of a batch, coloured, or as a line of JSON.

    Args:
        batch: the rows.
        tokenizer: whose ids they are.
        classes: what labels are called, where they are no ids of tokens.
        as_json: print JSON.
    """
    screen = console()
    if not as_json:
        screen.print(tr("cli.data.legend"), style="dim")
    for number in range(len(batch.ids)):
        row = _row(batch, number, tokenizer, classes)
        if as_json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            screen.print(_coloured(row, number))


def _row(batch: Batch, number: int, tokenizer: Tokenizer, classes: Sequence[str]) -> dict[str, Any]:
    """Tokens, labels (null is not predicted), positions and segments of the places that are no padding; the class of
    the row, where it has one as a whole."""
    real = batch.tags.position[number] >= 0
    by_token = batch.labels.dim() == 2  # else a label is a row's class, or says which row belongs to it
    every = batch.labels[number] if by_token else torch.full_like(batch.ids[number], IGNORE)
    ids, labels, position, segment = (
        values[real].tolist()
        for values in (batch.ids[number], every, batch.tags.position[number], batch.tags.segment[number])
    )

    def named(label: int) -> str:
        return classes[label] if classes else tokenizer.tokens([label])[0]

    row: dict[str, Any] = {
        "width": batch.ids.shape[1],
        "ids": ids,
        "tokens": tokenizer.tokens(ids),
        "labels": [None if label == IGNORE else label for label in labels],
        "label_tokens": [None if label == IGNORE else named(label) for label in labels],
        "positions": position,
        "segments": segment,
    }
    if not by_token and classes:
        row["class"] = classes[int(batch.labels[number])]
    if batch.source_ids is not None and batch.source_tags is not None:
        source = batch.source_ids[number][batch.source_tags.position[number] >= 0].tolist()
        row["source_tokens"] = tokenizer.tokens(source)
    return row


def _coloured(row: dict[str, Any], number: int) -> Text:
    tokens, wanted, segments = row["tokens"], row["label_tokens"], row["segments"]
    n_labels = sum(label is not None for label in wanted) + ("class" in row)
    counts = {"tokens": len(tokens), "width": row["width"], "labels": n_labels}
    text = Text(tr("cli.data.row", number=number + 1, segments=len(set(segments)), **counts) + "\n", "bold")
    if "source_tokens" in row:
        text.append(f"{tr('cli.data.source')}: {' '.join(row['source_tokens'])}\n", "dim")
    if "class" in row:
        text.append(f"{tr('cli.data.class')}: {row['class']}\n", "green")
    # next-token objectives predict in each place the token after it; others the token of the place itself
    shifted = any(label is not None and label != token for label, token in zip(wanted[:-1], tokens[1:], strict=True))
    for place, (token, label) in enumerate(zip(tokens, wanted, strict=True)):
        if place and segments[place] != segments[place - 1]:
            text.append("│ ", "bold yellow")
        if label is None:
            text.append(f"{token} ", "bright_black")
        elif shifted and token != label:
            text.append(f"{token}→{label} ", "red")
        else:
            text.append(f"{token} ", "green")
    return text
