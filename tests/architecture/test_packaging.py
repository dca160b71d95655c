"""What the package says of itself agrees: requirements with pins, the version with the change log."""

import re
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
