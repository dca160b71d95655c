"""Two replicas under a real Ray: what they answer, whom, where beginnings go, and what one that is killed leaves."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import transpect
from transpect.base.errors import ConfigError
from transpect.lm import LanguageModel

ROOT = Path(transpect.__file__).parents[2]
FILE = ROOT / "recipes" / "ray" / "serve.yaml"
SECRET = "0123456789abcdef"
WANTED = {"max_tokens": 60, "temperature": 1, "seed": 1, "ignore_eos": True}
SCRIPT = "import sys; from ray.serve.scripts import cli; sys.argv[0] = 'serve'; cli()"


@pytest.mark.slow  # importing Ray takes seconds
@pytest.mark.parametrize(
    ("data", "rule"), [({}, "API keys"), ({"port": 1}, "Ray listens"), ({"host": "0.0.0.0"}, "Ray listens")]
)
def test_what_does_not_suit_ray_is_refused(data: dict[str, Any], rule: str, monkeypatch: Any) -> None:
    pytest.importorskip("ray")
    from transpect.serve.ray import application

    monkeypatch.delenv("TRANSPECT_API_KEYS", raising=False)
    with pytest.raises(ConfigError, match=rule):
        application({"models": [{"path": "nowhere"}], **data})


@pytest.fixture(scope="module")
def cluster(models: Callable[[str], LanguageModel], tmp_path_factory: Any) -> Iterator[Callable[..., tuple[int, str]]]:
    """``cluster(path, **fields)`` asks the application of the file in `recipes`, with a tiny model: status and body."""
    ray = pytest.importorskip("ray")
    import yaml
    from ray import serve

    folder = tmp_path_factory.mktemp("ray")
    models("decoder").save(folder / "tiny")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    data["http_options"]["port"] = port
    own = data["applications"][0]
    own["args"]["models"] = [{"path": str(folder / "tiny"), "name": "tiny", "aliases": ["other"]}]
    for deployment in own["deployments"]:
        deployment["ray_actor_options"] = {"num_cpus": 0.1}
    (folder / "serve.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    more = {"TRANSPECT_API_KEYS": f"me:{SECRET}", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    more["PYTHONPATH"] = str(ROOT / "src")
    before = dict(os.environ)
    os.environ.update(more)
    try:
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
        address = ray.get_runtime_context().gcs_address
        command = [sys.executable, "-c", SCRIPT, "run", "--non-blocking", "--address", address, "serve.yaml"]
        subprocess.run(command, check=True, cwd=folder, capture_output=True, timeout=600)

        def ask(path: str, key: str = SECRET, **fields: Any) -> tuple[int, str]:
            head = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
            data = json.dumps(fields).encode() if fields else None
            try:
                with urlopen(Request(f"http://127.0.0.1:{port}{path}", data, head), timeout=120) as answer:
                    return answer.status, answer.read().decode()
            except HTTPError as refusal:
                return refusal.code, refusal.read().decode()

        ask.port = port  # type: ignore[attr-defined]
        wait_for(lambda: _health(ask) == {"up": 2, "all": 2})
        yield ask
        serve.shutdown()
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)


@pytest.mark.slow
def test_two_replicas_answer_as_the_engine_alone(
    cluster: Callable[..., tuple[int, str]], models: Callable[[str], LanguageModel]
) -> None:
    alone = models("decoder")
    prompts = [f"fox {letter}" for letter in "abcdefgh"]
    wanted = [alone.generate(own, max_new_tokens=60, temperature=1, seed=1, ignore_eos=True) for own in prompts]
    with ThreadPoolExecutor(8) as pool:
        whole = list(pool.map(lambda own: told(cluster("/v1/completions", prompt=own, **WANTED)), prompts))
        parts = list(pool.map(lambda own: told(cluster("/v1/completions", prompt=own, stream=True, **WANTED)), prompts))
    assert whole == parts == wanted
    assert told(cluster("/v1/completions", model="other", prompt=prompts[0], **WANTED)) == wanted[0]


@pytest.mark.slow
def test_keys_and_bounds_hold(cluster: Callable[..., tuple[int, str]]) -> None:
    assert cluster("/v1/models", key="")[0] == cluster("/v1/models", key=SECRET[::-1])[0] == 401
    assert cluster("/metrics", key="")[0] == 401 and cluster("/health", key="")[0] == 200
    assert [own["id"] for own in json.loads(cluster("/v1/models")[1])["data"]] == ["tiny", "other"]
    for path, fields, status, code in (
        ("/v1/completions", {"prompt": "a", "n": 99}, 400, "integer_above_max_value"),
        ("/v1/completions", {"prompt": "a", "model": "no"}, 404, "model_not_found"),
        ("/v1/completions", {"prompt": "a" * 2**21}, 413, "request_too_large"),
        ("/v1/nothing", {"prompt": "a"}, 404, "not_found"),
    ):
        answer = cluster(path, **fields)
        assert (answer[0], json.loads(answer[1])["error"]["code"]) == (status, code)


@pytest.mark.slow
def test_beginnings_stay_together_and_numbers_are_told(cluster: Callable[..., tuple[int, str]]) -> None:
    for letter in "abcdef":
        before = numbers(cluster, "tokens_read_total")
        assert len(before) == 2
        for end in "ghij":
            fields = {"user": letter * 512, "prompt": letter * 90 + end, "max_tokens": 1}
            assert cluster("/v1/completions", **fields)[0] == 200
        changed = [name for name, count in numbers(cluster, "tokens_read_total").items() if count > before[name]]
        assert len(changed) == 1


@pytest.mark.slow
def test_who_hangs_up_frees_what_was_held(cluster: Callable[..., tuple[int, str]]) -> None:
    head = f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {SECRET}\r\n"
    fields = {"prompt": "fox", "max_tokens": 120, "stream": True, "ignore_eos": True, "n": 16}
    for stream in (True, False):
        body = json.dumps({**fields, "stream": stream})
        with socket.create_connection(("127.0.0.1", cluster.port)) as own:  # type: ignore[attr-defined]
            own.sendall(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
            wait_for(lambda: any(numbers(cluster, "running").values()))
        wait_for(lambda: not any(numbers(cluster, "running").values()))
        assert not any(numbers(cluster, "blocks_used").values())
    assert sum(numbers(cluster, "tokens_written_total").values()) > 0


def numbers(ask: Callable[..., tuple[int, str]], name: str) -> dict[str, float]:
    """What the engines tell, by replica."""
    page = ask("/metrics")[1]
    found = re.findall(rf'^transpect_engine_{name}{{.*replica="(\w+)"}} (\S+)$', page, re.MULTILINE)
    return {name: float(count) for name, count in found}


@pytest.mark.slow
def test_one_is_killed_in_the_middle_of_a_load(cluster: Callable[..., tuple[int, str]]) -> None:
    import ray

    def ask(number: int) -> str:
        return told(cluster("/v1/completions", prompt=f"fox {number}", stream=number % 2 == 0, **WANTED))

    alone = [ask(n) for n in range(60)]
    victim = replicas()[0]
    with ThreadPoolExecutor(16) as pool:
        found = [pool.submit(ask, n) for n in range(60)]
        wait_for(found[5].done)
        ray.kill(ray.get_actor(victim, namespace="serve"))
        answers = [own.result() for own in found]
    assert all(own in (wanted, "replica_lost") for own, wanted in zip(answers, alone, strict=True))
    assert sum(own == wanted for own, wanted in zip(answers, alone, strict=True)) >= 40
    wait_for(lambda: len(replicas()) == 2 and victim not in replicas() and _health(cluster) == {"up": 2, "all": 2})
    assert [ask(n) for n in range(4)] == alone[:4]


def replicas() -> list[str]:
    """The actors that answer."""
    import ray

    named = ray.util.list_named_actors(all_namespaces=True)
    return sorted(own["name"] for own in named if own["name"].startswith("SERVE_REPLICA::transpect#Replica#"))


def told(answer: tuple[int, str]) -> str:
    """The text of a completion, whole or in pieces; or the code of its error."""
    status, text = answer
    if status != 200:
        return str(json.loads(text)["error"]["code"])
    if not text.startswith("data: "):
        return str(json.loads(text)["choices"][0]["text"])
    lines = [own.removeprefix("data: ") for own in text.split("\n\n") if own]
    if lines[-1] != "[DONE]":
        return str(json.loads(lines[-1])["error"]["code"])
    return "".join(json.loads(own)["choices"][0]["text"] for own in lines[:-1])


def _health(ask: Callable[..., tuple[int, str]]) -> Any:
    try:
        return json.loads(ask("/health")[1])["replicas"]
    except (OSError, ValueError, KeyError):
        return None


def wait_for(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)
