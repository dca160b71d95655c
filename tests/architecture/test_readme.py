"""The two READMEs say the same, and what they say is so: commands parse, files exist, the tree is the tree."""

import os
import re
import shlex
import subprocess
import sys
from collections import Counter
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


SMALL = ["--model.d_model=32", "--model.n_layers=1", "--model.n_heads=2", "--train.max_steps=2", "--train.batch_size=2"]


def run(words: list[str]) -> None:
    """Run ``transpect WORDS``; training is made small enough for a test."""
    from transpect.cli.main import main

    assert main([*words, *SMALL] if words[0] == "train" else words) == 0, " ".join(words)


def test_the_examples_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder where ``make demo`` has left a model: each command, then the Python."""
    monkeypatch.chdir(tmp_path)
    for name in ("recipes", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    poem = "春眠不覺曉，處處聞啼鳥。夜來風雨聲，花落知多少。\n"
    (tmp_path / "poems.txt").write_text("".join(poem[i:] + poem[:i] for i in range(len(poem))) * 40, encoding="utf-8")
    run(["train", "recipes/demo.yaml", "--out", "runs/demo"])

    examples = [words for command in commands(TEXTS["en"]) if (words := words_of(command))]
    assert {words[0] for words in examples} >= {"generate", "eval", "model", "tokenizer", "train"}
    for words in examples:
        run(words)
    for block in blocks(TEXTS["en"], "python"):
        subprocess.run([sys.executable, "-c", block], check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})


def test_both_pages_have_the_same_commands_and_code() -> None:
    assert commands(TEXTS["en"]) == commands(TEXTS["zh"])
    assert blocks(TEXTS["en"], "python") == blocks(TEXTS["zh"], "python")


def figures(text: str) -> Counter[str]:
    """Each number outside the code blocks."""
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", FENCE.sub("", text)))


def test_both_pages_have_the_same_figures_and_links() -> None:
    assert figures(TEXTS["en"]) == figures(TEXTS["zh"])
    links = {lang: re.findall(r"\]\(([^)]+)\)", text) for lang, text in TEXTS.items()}
    assert Counter(map(in_chinese, links["en"])) == Counter(links["zh"])


def in_chinese(link: str) -> str:
    """Where the Chinese page leads instead: to the Chinese page, where there is one; and back to the English README."""
    page, mark, part = link.partition("#")
    chinese = page.replace(".md", ".zh-CN.md")
    if page == "README.zh-CN.md":
        return "README.md"
    return f"{chinese}{mark}{part}" if (ROOT / chinese).is_file() else link


def headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE)]


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING"])
def test_both_pages_have_the_same_outline(name: str) -> None:
    english, chinese = ((ROOT / f"{name}{end}").read_text(encoding="utf-8") for end in (".md", ".zh-CN.md"))
    assert headings(english) == headings(chinese)
    assert FENCE.findall(english) == FENCE.findall(chinese) or name == "README"  # whose trees are in words
    items = [re.findall(r"^- ", text, re.MULTILINE) for text in (english, chinese)]
    assert len(items[0]) == len(items[1])


@pytest.mark.parametrize("page", sorted(page.name for page in ROOT.glob("*.md")))
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
    there |= {path.name for path in package.glob("*.py") if path.stem not in ("__init__", "__main__")}
    assert set(drawn) == there
