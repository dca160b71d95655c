"""The chat page: one file, two languages, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "input", "br"}


class Reading(HTMLParser):
    """Tags in their order, with attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_in_two_languages(api: Any) -> None:
    answer = api("/")
    text = answer.body.decode()
    reading = Reading()
    reading.feed(text)
    assert reading.open == []
    for tag, given in reading.found:
        for name in ("src", "href", "action"):
            assert (given.get(name) or "data:").startswith("data:"), (tag, given)
        assert not any(name.startswith("on") for name in given)
    assert "http://" not in text and "https://" not in text and "innerHTML" not in text and "eval(" not in text

    words = re.search(r"const WORDS = \{(.*?)\n\};", text, re.DOTALL)
    assert words is not None
    english, chinese = (dict(re.findall(r'(\w+): "([^"]*)"', part)) for part in words[1].split("zh: {"))
    assert set(english) == set(chinese)
    used = {given[name] for _, given in reading.found for name in ("data-t", "data-label") if name in given}
    used |= set(re.findall(r"WORDS\[lang\]\.(\w+)|button\(\"(\w+)\"", text)[0])
    assert {name for name in used if name} <= set(english)
    assert all(re.search("[\u4e00-\u9fff]", own) for own in chinese.values())


def test_a_browser_runs_its_script_and_no_other(api: Any) -> None:
    answer = api("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.body.decode(), re.DOTALL)
        mark = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{mark}'" in policy
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["x-content-type-options"] == "nosniff"
