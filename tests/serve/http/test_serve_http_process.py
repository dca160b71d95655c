"""The command in a process of its own: signals, and a system that gives it few descriptors."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transpect.lm import LanguageModel

pytestmark = pytest.mark.slow
LONG = {"model": "tiny", "prompt": "The", "max_tokens": 400, "temperature": 1, "seed": 1, "ignore_eos": True}


class Running:
    """A server."""

    def __init__(self, folder: Path, descriptors: int | None) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "transpect", "serve", "--config", str(folder / "serve.yaml")]
        limit = "" if descriptors is None else f"ulimit -n {descriptors}; "
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", f'{limit}exec "$@"', "sh", *command], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)", line)
        assert found is not None, (line, self.log.read_text())
        self.port = int(found[1])

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def stream(self) -> socket.socket:
        """A long one that has begun."""
        data = json.dumps({**LONG, "stream": True}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        found = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        found.sendall(f"{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        assert b"200 OK" in found.recv(100)
        return found

    def events(self) -> list[str]:
        """Of its log."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line)["event"] for line in lines if line.startswith("{")]

    def until(self, holds: Callable[[], Any]) -> None:
        end = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < end and self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def folder(language_models: dict[str, LanguageModel], tmp_path_factory: Any) -> Path:
    found: Path = tmp_path_factory.mktemp("served")
    language_models["writer"].save(found / "tiny")
    return found


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Running]]:
    """``start({…}, descriptors)`` runs the command with a configuration."""
    made: list[Running] = []

    def begin(configuration: dict[str, Any], descriptors: int | None = None) -> Running:
        configure(folder, configuration)
        made.append(Running(folder, descriptors))
        return made[-1]

    yield begin
    for own in made:
        own.process.kill()
        own.process.wait()


def configure(folder: Path, more: dict[str, Any], *aliases: str) -> None:
    models = [{"path": str(folder / "tiny"), "name": "tiny", "aliases": list(aliases)}]
    (folder / "serve.yaml").write_text(json.dumps({"port": 0, "models": models, **more}), encoding="utf-8")


def all_of(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


def test_few_descriptors_and_an_end_in_a_stream(start: Any) -> None:
    """Of 96 descriptors some are left for what runs; SIGTERM then ends a stream, and the process with status 0."""
    server = start({"limits": {"drain_seconds": 0.5}}, 96)
    held = []
    for _ in range(150):  # those that are not taken wait in the system's queue
        held.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
    server.until(lambda: "connections wait" in server.events())
    assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 90
    for own in held[:140]:
        own.close()
    status, answer = server.ask("/v1/completions", {**LONG, "max_tokens": 4, "regex": "[ab]{3}"})
    assert status == 200 and re.fullmatch("[ab]{3}", answer["choices"][0]["text"]), "the helper for schemas started"
    assert server.events().count("connections wait") < 10, "it does not spin"
    stream = server.stream()
    server.process.send_signal(signal.SIGTERM)
    ended = all_of(stream)
    assert server.process.wait(30) == 0
    assert (b"data: [DONE]" in ended) != (b'"code":"shutting_down"' in ended)
    assert server.events()[-1] == "stopped"


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_changed_configuration_is_read_at_sighup(replicas: int, start: Any, folder: Path) -> None:
    server = start({"replicas": replicas})
    if replicas > 1:
        server.until(lambda: server.ask("/health")[1]["status"] == "ok")
    assert server.ask("/v1/completions", {**LONG, "model": "other", "max_tokens": 1})[0] == 404
    stream = server.stream()
    configure(folder, {"replicas": replicas}, "other")
    server.process.send_signal(signal.SIGHUP)
    server.until(lambda: server.events().count("reloaded") == replicas)
    for number in range(2 * replicas):
        body = {**LONG, "model": "other", "prompt": f"fox {number}", "max_tokens": 1}
        assert server.ask("/v1/completions", body)[0] == 200
    assert b"data: [DONE]" in all_of(stream), "what ran goes on"
    (folder / "serve.yaml").write_text("models: nonsense", encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)
    server.until(lambda: "not reloaded" in server.events())
    assert server.ask("/v1/completions", {**LONG, "model": "other", "max_tokens": 1})[0] == 200
    stream = server.stream()
    server.process.send_signal(signal.SIGTERM)
    assert b"data: [DONE]" in all_of(stream), "what runs is finished"
    assert server.process.wait(60) == 0
