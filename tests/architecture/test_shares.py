"""The table of grids that `make test` walks in part names grids, and leaves something of each to every run."""

import ast
from pathlib import Path
from zlib import crc32

TESTS = Path(__file__).resolve().parents[1]


def shares() -> dict[str, int]:
    for node in ast.parse((TESTS / "conftest.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ONE_IN":
            return ast.literal_eval(node.value)
    raise AssertionError("conftest.py has a table ONE_IN")


def test_each_is_a_test_with_cases() -> None:
    for name, share in shares().items():
        file, _, function = name.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body), name
        assert 2 <= share <= 12, name


def test_an_axis_that_takes_turns_is_met_whole() -> None:
    """By counting on, one in three of three kinds in turn would be of one kind."""
    for share in set(shares().values()):
        kept = {n % 3 for n in range(600) if not crc32(f"kind-{n % 3}_case-{n}]".encode()) % share}
        assert kept == {0, 1, 2}
