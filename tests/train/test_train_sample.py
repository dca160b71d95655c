"""The sample that is shown before training: what is learnt is marked, and nothing moves."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from transpect.data.documents import Document, Listed
from transpect.data.loader import Batches
from transpect.data.objectives import Chat, Preference
from transpect.text import train_tokenizer
from transpect.train.watching.sample import show_sample

TEMPLATE = (
    "{% for m in messages %}{{ m.role + ' ' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)
TALK = [{"role": "user", "content": "[b]x[/b]"}, {"role": "assistant", "content": "fish"}]
PAIR = {"prompt": TALK[:1], "chosen": TALK[1], "rejected": {"role": "assistant", "content": "hay"}}


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    ("objective", "record", "learnt"),
    [(Chat(template=TEMPLATE), {"messages": TALK}, ["fish"]), (Preference(template=TEMPLATE), PAIR, ["fish", "hay"])],
)
def test_what_is_learnt_is_marked(objective: Any, record: Any, learnt: list[str], terminal: bool) -> None:
    tokenizer = train_tokenizer("char", ["abcdefghijklmnopqrstuvwxyz []/"])
    documents = Listed([Document("x", record=json.dumps(record))])
    batches = Batches(documents, objective, tokenizer, batch_size=2, seq_len=60)
    before = batches.state()
    out = io.StringIO()
    show_sample(Console(file=out, force_terminal=terminal, width=200), batches, tokenizer, objective.shown)
    assert batches.state() == before
    shown = out.getvalue()
    assert shown.count("A sample:") == len(learnt)
    assert shown.count("[b]x[/b]") == len(learnt)  # no markup of ours
    for said in learnt:
        assert (f"\x1b[1;32m{said}</s>" if terminal else f"⟦{said}</s>⟧") in shown
        assert f"{len(said) + 1} are learnt" in shown.replace("\x1b[0m", "").replace("\x1b[1;36m", "")
