"""What the package says of itself agrees: requirements with pins, the version with the change log."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import transpect

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = {
    canonicalize_name(name): version
    for name, version in (
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )
}
REQUIREMENTS = [
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *(one for extra in PROJECT["project"]["optional-dependencies"].values() for one in extra),
]


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_each_requirement_is_pinned_inside_its_range(requirement: str) -> None:
    wanted = Requirement(requirement)
    if canonicalize_name(wanted.name) == "transpect":
        return  # an extra that gathers others
    assert PINS[canonicalize_name(wanted.name)] in wanted.specifier


def test_pins_are_plain_versions_that_any_index_serves() -> None:
    assert not {name: version for name, version in PINS.items() if not re.fullmatch(r"\d+(\.\w+)*", version)}


def test_the_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.search(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert latest is not None
    assert PROJECT["project"]["version"] == transpect.__version__ == latest[1]


def test_extras_that_others_rely_on_exist() -> None:
    assert {"all", "dev"} <= set(PROJECT["project"]["optional-dependencies"])


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    targets = {name for name in phony[1].split() if not name.startswith("setup-") and name != "help"}
    assert targets == set(re.findall(r"@echo 'make ([\w-]+) ", makefile))
    assert targets >= {"demo", "test", "check", "format", "clean"}


def _imported(tree: ast.AST, *, at_once: bool) -> set[str]:
    """The modules that a file imports: ``at_once`` alone those that its own import needs."""
    found, todo = set[str](), list(ast.iter_child_nodes(tree))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
        elif at_once and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        todo += ast.iter_child_nodes(node)
    return found - sys.stdlib_module_names - {"transpect"}


def _declared(names: list[str]) -> set[str]:
    extras = PROJECT["project"]["optional-dependencies"]
    found = set[str]()
    for one in map(Requirement, names):
        if canonicalize_name(one.name) == "transpect":
            found |= _declared([inner for extra in one.extras for inner in extras[extra]])
        else:
            found.add(canonicalize_name(one.name))
    return found


DISTRIBUTION = {
    "yaml": "pyyaml",
    "llama_cpp": "llama-cpp-python",
    "llvmlite": "numba",
    "markupsafe": "jinja2",
    "opentelemetry": "opentelemetry-sdk",
}
"""Import name to the requirement that brings it, where they differ."""

ORDINARY = _declared(PROJECT["project"]["dependencies"])
SOURCES = [file for file in sorted((ROOT / "src").rglob("*.py")) if "workers" not in file.parts]
"""Workers run in the environment of the peer that they measure."""


OF_EXTRAS = {"serve/ray": "ray"}
"""Packages that are of use with an extra alone, and say so where it is missing: their classes are the extra's kinds."""


def test_what_a_file_imports_at_once_is_an_ordinary_dependency() -> None:
    missing = {}
    for file in SOURCES:
        found = _imported(ast.parse(file.read_text(encoding="utf-8")), at_once=True)
        folder = file.parent.relative_to(ROOT / "src" / "transpect").as_posix()
        own = (
            _declared(PROJECT["project"]["optional-dependencies"][OF_EXTRAS[folder]]) if folder in OF_EXTRAS else set()
        )
        if lacks := {canonicalize_name(DISTRIBUTION.get(name, name)) for name in found} - ORDINARY - own:
            missing[file.name] = lacks
    assert not missing


def test_what_the_tests_import_comes_with_dev() -> None:
    here = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {
        "tests",
        *(p.name for p in (ROOT / "tests").rglob("*") if p.is_dir()),
    }
    found = set[str]()
    for file in (ROOT / "tests").rglob("*.py"):
        found |= _imported(ast.parse(file.read_text(encoding="utf-8")), at_once=True)
    declared = ORDINARY | _declared(PROJECT["project"]["optional-dependencies"]["dev"])
    missing = {canonicalize_name(DISTRIBUTION.get(name, name)) for name in found - here} - declared
    assert not missing
