"""The bounds that the pages tell of are the bounds that hold."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from transpect.base.errors import ConfigError
from transpect.serve.http.limits import Limits


@pytest.mark.parametrize("page", ["serving.md", "serving.zh-CN.md"])
def test_the_pages_tell_the_defaults(page: str, root: Path) -> None:
    text = (root / "docs" / page).read_text(encoding="utf-8")
    told: dict[str, str] = {}
    for names, values in re.findall(r"^\| (`[^|]*`) \| ([\d., ]+) \|", text, re.MULTILINE):
        told |= dict(zip(re.findall(r"`(\w+)`", names), values.split(", "), strict=True))
    assert told == {name: str(value) for name, value in asdict(Limits()).items()}


@pytest.mark.parametrize("name", asdict(Limits()))
def test_a_bound_is_above_nothing(name: str) -> None:
    kind = type(getattr(Limits(), name))
    Limits(**{name: kind(1)})
    for wrong in (0, -1):
        with pytest.raises(ConfigError):
            Limits(**{name: kind(wrong)})
