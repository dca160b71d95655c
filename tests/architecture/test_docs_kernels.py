"""The table of kernels in docs/attention.md, in both languages, against what each kernel refuses when it is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

import pytest

from transpect.base.codec import Variant, from_data
from transpect.base.errors import ConfigError
from transpect.core import AttentionConfig, Full, Kernel, Naive, Visibility
from transpect.core.positions import Scores

FULL = Full()
DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"attention.md": 0, "attention.zh-CN.md": 1}


def ours(union: type[Variant]) -> dict[str, type[Variant]]:
    """Its kinds but those that a test defines."""
    return {kind: variant for kind, variant in union.kinds().items() if variant.__module__.startswith("transpect.")}


WORDS: dict[object, tuple[str, str]] = {
    tuple(ours(Visibility)): ("all", "全部"),
    ("full", "causal"): ("full, causal", "full、causal"),
    ("full",): ("full", "full"),
    get_args(Scores): ("all", "全部"),
    ("nothing", "distance"): ("what depends on distance", "只取决于距离的"),
    ("nothing",): ("none on scores", "不能加在分数上"),
    True: ("yes", "可以"),
    False: ("no", "不行"),
}
"""How the pages say which rules and positions a kernel takes, and whether it takes a cap and dropout."""


def rows(page: str) -> dict[str, list[str]]:
    """Name -> cells of rules, positions, cap and dropout."""
    text = (DOCS / page).read_text(encoding="utf-8")
    cells = [re.split(r"\s*\|\s*", line.strip("| \n")) for line in text.splitlines() if line.startswith("| `")]
    return {name.strip("`"): rest[-4:] for name, *rest in cells if len(rest) == 6}


def rules() -> Iterator[Visibility]:
    """One of each kind."""
    for kind, rule in ours(Visibility).items():
        needed = [field.name for field in fields(rule) if field.default is MISSING]  # type: ignore[arg-type]
        options = {name: ["full", "full"] if name == "rules" else 2 for name in needed}  # the rest are sizes
        yield from_data(Visibility, {"kind": kind, **options})


def takes(kernel: Kernel, rule: Visibility = FULL, scores: Scores = "nothing", **attention: float) -> bool:
    config = AttentionConfig(n_heads=2, kernel=kernel, **attention)  # type: ignore[arg-type]
    try:
        config.check_kernel(rule, scores)
    except ConfigError as error:
        return f"`{kernel.kind}`" not in str(error)  # it refuses by name
    return True


@pytest.mark.parametrize("page", PAGES)
def test_the_table_names_every_kernel(page: str) -> None:
    assert sorted(rows(page)) == sorted(ours(Kernel))
    assert list(rows(page)) == list(rows("attention.md"))


@pytest.mark.parametrize("kind", ours(Kernel))
@pytest.mark.parametrize("page", PAGES)
def test_the_table_says_what_a_kernel_takes(page: str, kind: str) -> None:
    kernel = ours(Kernel)[kind]()
    assert isinstance(kernel, Kernel)
    taken = (
        tuple(rule.kind for rule in rules() if takes(kernel, rule)),
        tuple(scores for scores in get_args(Scores) if takes(kernel, scores=scores)),
        takes(kernel, soft_cap=3.0),
        takes(kernel, dropout=0.1),
    )
    assert rows(page)[kind] == [WORDS[what][PAGES[page]] for what in taken]


def test_the_definition_takes_everything() -> None:
    """A test in which nothing is taken, or nothing is asked, would pass the rest."""
    assert len(list(rules())) == len(ours(Visibility)) > 10
    assert all(takes(Naive(), rule, scores, soft_cap=1.0) for rule in rules() for scores in get_args(Scores))


@pytest.mark.parametrize("page", PAGES)
def test_the_page_names_the_default(page: str) -> None:
    default = AttentionConfig(n_heads=1).kernel.kind
    assert re.search(rf"`{default}` is the default|默认是 `{default}`", (DOCS / page).read_text(encoding="utf-8"))
