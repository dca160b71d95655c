"""The pages of docs/: their code runs, and both languages show the same code and links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs").glob("*.md") if not page.name.endswith(".zh-CN.md"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return FENCED.findall(page.read_text(encoding="utf-8"))


def chinese(page: Path) -> Path:
    return page.with_name(f"{page.stem}.zh-CN.md")


def test_there_are_pages() -> None:
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_stands_in_both_languages_with_the_same_code(page: Path) -> None:
    twin = chinese(page)
    assert twin.is_file(), f"{twin.name} is missing"
    assert blocks(page) == blocks(twin)
    assert twin.name in page.read_text(encoding="utf-8")
    assert page.name in twin.read_text(encoding="utf-8")
    headings = [re.findall(r"^#+", p.read_text(encoding="utf-8"), re.MULTILINE) for p in (page, twin)]
    assert headings[0] == headings[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transpect.interop.families import FAMILIES

    known = dict(FAMILIES)
    monkeypatch.chdir(tmp_path)
    code = [text for language, text in blocks(page) if language == "python"]
    assert code
    try:
        exec(compile("\n".join(code), str(page), "exec"), {"__name__": "page"})
    finally:
        FAMILIES.clear()
        FAMILIES.update(known)


@pytest.mark.parametrize(
    ("page", "total", "named"),
    [
        ("README.md", r"(\d+) published families", r"published family \((.+?)\s+and \[(\d+) more\]"),
        ("README.zh-CN.md", r"(\d+) 个已发表家族", r"已发表家族（(.+?)，以及\s+\[另外 (\d+) 个\]"),
    ],
)
def test_the_readme_counts_the_families(page: str, total: str, named: str) -> None:
    from transpect.interop.families import FAMILIES

    text = (ROOT / page).read_text(encoding="utf-8")
    (all_of_them,), ((names, more),) = re.findall(total, text), re.findall(named, text, re.DOTALL)
    assert int(all_of_them) == len(FAMILIES)
    assert len(re.split("[,、]", names)) + int(more) == len(FAMILIES)


def test_the_page_of_families_names_all_of_them() -> None:
    from transpect.interop.families import FAMILIES

    for page in (ROOT / "docs" / "checkpoints.md", ROOT / "docs" / "checkpoints.zh-CN.md"):
        named = set(re.findall(r"`([a-z0-9_-]+)`", page.read_text(encoding="utf-8")))
        assert set(FAMILIES) <= named, set(FAMILIES) - named
