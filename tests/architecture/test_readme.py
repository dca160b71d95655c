"""The two READMEs say the same, and what they say is so: commands parse, files exist, the tree is the tree."""

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
TEXTS = {lang: page.read_text(encoding="utf-8") for lang, page in PAGES.items()}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str, *kinds: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind in kinds]


def commands(text: str) -> list[str]:
    """The lines of the shell blocks, with continued lines joined and prompts and comments dropped."""
    lines = "\n".join(blocks(text, "sh", "bash", "console")).replace("\\\n", " ").splitlines()
    return [line for raw in lines if (line := re.sub(r"(^|\s+)#.*$", "", raw).removeprefix("$ ").strip())]


def words_of(command: str) -> list[str]:
    """The words after ``transpect``; empty for another command."""
    words = shlex.split(command, comments=True)
    names = [i for i, word in enumerate(words) if word == "transpect" or word.endswith("/transpect")]
    return words[names[0] + 1 :] if names else []


TRANSPECT = sorted({command for text in TEXTS.values() for command in commands(text) if words_of(command)})


@cache
def help_of(*words: str) -> str | None:
    """What ``transpect WORDS --help`` prints; None if there is no such command."""
    result = subprocess.run(
        [sys.executable, "-c", "import sys; from transpect.cli.main import main; sys.exit(main())", *words, "--help"],
        env=os.environ | {"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout if result.returncode == 0 else None


def command_of(words: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The words that name a command (one, or a group and its member) and the arguments after them."""
    groups = {"model", "tokenizer"}
    n = 2 if words and words[0] in groups else 1
    return tuple(words[:n]), words[n:]


@pytest.mark.parametrize("command", TRANSPECT)
def test_a_command_of_the_readme_exists_with_its_options(command: str) -> None:
    name, arguments = command_of(words_of(command))
    if name[0] in {"--help", "--version"}:
        name, arguments = (), list(name)
    answer = help_of(*name)
    assert answer is not None, f"transpect {' '.join(name)} --help fails"
    options = {word.split("=")[0] for word in arguments if word.startswith("--")}
    plain = {option for option in options if "." not in option}  # a dotted one overrides a key of the configuration
    assert not {option for option in plain if option not in answer}


@pytest.mark.parametrize("command", TRANSPECT)
def test_a_file_that_a_command_reads_is_in_the_repository(command: str) -> None:
    named = [word for word in words_of(command) if re.fullmatch(r"[\w./-]+\.(ya?ml|md|txt|jsonl|tsv)", word)]
    assert not [word for word in named if not word.startswith("../shared/") and not (ROOT / word).exists()]


def test_both_pages_have_the_same_commands_and_code() -> None:
    assert commands(TEXTS["en"]) == commands(TEXTS["zh"])
    assert TRANSPECT
    assert blocks(TEXTS["en"], "python") == blocks(TEXTS["zh"], "python")


def figures(text: str) -> Counter[str]:
    """Each number outside the code blocks."""
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", FENCE.sub("", text)))


def test_both_pages_have_the_same_figures_and_links() -> None:
    assert figures(TEXTS["en"]) == figures(TEXTS["zh"])
    links = {lang: re.findall(r"\]\(([^)]+)\)", text) for lang, text in TEXTS.items()}
    swapped = [link if link != "README.zh-CN.md" else "README.md" for link in links["en"]]
    assert Counter(swapped) == Counter(links["zh"])


def headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE)]


def test_both_pages_have_the_same_outline() -> None:
    assert headings(TEXTS["en"]) == headings(TEXTS["zh"])


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_and_paths_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    sources = [f"src/transpect/{name}" for name in re.findall(r"`((?:core|base|text|data)/[\w/.]*)`", text)]
    assert not [link for link in [*links, *sources] if link and not (ROOT / link).exists()]


@pytest.mark.parametrize("lang", PAGES)
def test_the_tree_is_the_tree(lang: str) -> None:
    drawn = [
        line.split()[0] for block in blocks(TEXTS[lang], "text") for line in block.splitlines() if line[:2] == "  "
    ]
    package = ROOT / "src" / "transpect"
    there = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()}
    there |= {path.name for path in package.glob("*.py") if path.name != "__init__.py"}
    assert set(drawn) == there


@pytest.mark.parametrize("lang", PAGES)
def test_python_blocks_use_names_that_exist(lang: str) -> None:
    import transpect

    found = blocks(TEXTS[lang], "python")
    assert found
    for block in found:
        compile(block, f"{PAGES[lang].name}", "exec")
        for name in re.findall(r"\btranspect\.(\w+)", block):
            assert hasattr(transpect, name), f"transpect.{name}"
