"""Several processes behind one listener: beginnings stay together, and who dies loses nothing in silence."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import Request, urlopen

import pytest

from transpect.base.codec import dump_yaml
from transpect.lm import LanguageModel
from transpect.serve.http.gate import Gate
from transpect.serve.http.models import ModelSpec
from transpect.serve.http.opening import ServerConfig
from transpect.serve.http.replicas.front import Front
from transpect.serve.http.replicas.local import Local
from transpect.serve.http.replicas.opening import open_front
from transpect.serve.http.replicas.replica import Replica
from transpect.serve.http.replicas.routing import PIECE, SLACK, Router

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DOWN = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}"
BODY = {"prompt": "x" * 3 * PIECE}


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_beginnings_stay_together_unless_one_has_far_more_to_do() -> None:
    router, text = Router(), b"a" * 5 * PIECE
    first = router.choose(text, b"", {"1": 0, "2": 0})
    other = {"1": "2", "2": "1"}[first]
    assert router.choose(b"b" * 5 * PIECE, b"", {first: 1, other: 0}) == other
    for load, wanted in ((0, first), (SLACK, first), (SLACK + 1, other)):
        fresh = Router()
        fresh.choose(text, b"", {first: 0})
        assert fresh.choose(text[: 3 * PIECE] + b"c" * PIECE, b"", {first: load, other: 0}) == wanted
        assert fresh.choose(text, b"another's", {first: 1, other: 0}) == other
    router.forget(first)
    assert router.choose(text, b"", {first: 1, other: 0}) == other
    assert router.choose(text, b"", {first: 0, "3": 9}) == first, "who is not there is not asked"
    assert router.choose(b"short", b"", {"1": 2, "2": 1}) == "2"


@pytest.fixture
def front(app: Any) -> Iterator[Callable[..., Any]]:
    """``front(b"…", b"…")`` is the app before replicas that answer these bytes and hang up; `asked` counts them."""
    api = app()
    servers = []

    def make(*answers: bytes) -> Any:
        asked = api.asked = [0] * len(answers)

        async def start(number: int) -> Replica:
            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                asked[number] += 1
                writer.write(answers[number])
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            servers.append(server)
            replica = Replica(str(number), [], {}, api.service.log.tell)
            replica.port = server.sockets[0].getsockname()[1]
            return replica

        replicas = [api.loop.run_until_complete(start(n)) for n in range(len(answers))]
        api.fleet = Local(replicas)
        api.front = Front(api.service, api.fleet)
        api.app = Gate(api.front, api.service, frozenset(), local=True)
        return api

    yield make
    for server in servers:
        server.close()


def test_an_answer_comes_through_and_what_is_alike_goes_to_one(front: Any) -> None:
    api = front(OK, OK)
    for _ in range(3):
        answer = api("/v1/completions", BODY, headers={"x-request-id": "mine"})
        assert (answer.status, answer.body, answer.headers["x-request-id"]) == (200, b"{}", "mine")
    assert sorted(api.asked) == [0, 3]
    assert [own.load for own in api.fleet.replicas] == [0, 0]


@pytest.mark.parametrize("broken", [b"", OK[:-1], OK[:20], DOWN, STREAM, STREAM + b"5\r\nda"])
def test_what_is_lost_before_its_answer_is_asked_of_another(broken: bytes, front: Any) -> None:
    api = front(broken, OK)
    assert api("/v1/completions", BODY).body == b"{}"
    assert api.asked == [1, 1] and api.front.retries == 1


def test_a_stream_that_breaks_off_says_so(front: Any) -> None:
    event = b'data: {"n": 1}\n\n'
    whole = front(STREAM + piece(event) + piece(b"data: [DONE]\n\n") + b"0\r\n\r\n", OK)
    assert whole("/v1/completions", BODY).events == [{"n": 1}, "[DONE]"]
    for rest in (b"", piece(b'data: {"n"'), b"7\r\nda"):
        events = front(STREAM + piece(event) + rest, OK)("/v1/completions", BODY).body.split(b"\n\n")
        last = json.loads([own for own in events if own][-1].removeprefix(b"data: "))
        assert last["error"]["code"] == "replica_lost" and b"data: [DONE]" not in events


def test_without_replicas_there_is_an_error(front: Any) -> None:
    api = front(b"", b"")
    answer = api("/v1/completions", BODY)
    assert (answer.status, answer.error["code"]) == (503, "no_replica")
    assert api("/ready").status == api("/health").status == 503
    for own in api.fleet.replicas:
        own.port = None
    assert api("/health").json == {"status": "dead", "replicas": {"up": 0, "all": 2}}


@pytest.mark.parametrize(
    ("second", "status", "state"), [(OK, 200, "ok"), (DOWN, 200, "degraded"), (b"", 200, "degraded")]
)
def test_health_is_that_of_the_replicas(second: bytes, status: int, state: str, front: Any) -> None:
    api = front(OK, second)
    answer = api("/health")
    assert (answer.status, answer.json["status"]) == (status, state)


def test_a_refusal_of_all_is_passed_on(front: Any) -> None:
    api = front(DOWN, DOWN)
    answer = api("/v1/completions", BODY)
    assert (answer.status, answer.body, api.asked, api.front.retries) == (503, b"{}", [1, 1], 1)


def test_numbers_of_replicas_have_their_names(front: Any) -> None:
    page = b"# TYPE x gauge\nx 1.0\n"
    said = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page
    found = front(said, said)("/metrics").body.decode()
    assert 'x{replica="0"} 1.0' in found and 'x{replica="1"} 1.0' in found
    assert 'transpect_replica_up{replica="1"} 1.0' in found and "transpect_front_retries 0.0" in found


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "count"), [(1, 40), (2, 8)])
def test_two_replicas_of_which_one_is_killed(
    parts: int, count: int, language_models: dict[str, LanguageModel], tmp_path: Path, monkeypatch: Any
) -> None:
    language_models["writer"].save(tmp_path / "tiny")
    monkeypatch.setenv("TRANSPECT_API_KEYS", "me:0123456789abcdef")
    model = ModelSpec(str(tmp_path / "tiny"), "tiny", tensor_parallel=parts)
    config = ServerConfig((model,), port=0, replicas=2)
    address: list[str] = []
    server = open_front(config, lambda: config, os.environ, started=address.append)
    monkeypatch.setattr(server, "_reload", None)  # signals are for a process's first thread
    thread = Thread(target=server.run)
    thread.start()
    replicas = server.fleet.replicas
    try:
        wait_for(lambda: address and all(own.port for own in replicas))
        before = [own.pid for own in replicas]

        def ask(number: int) -> str:
            body = {"prompt": f"fox {number}", "max_tokens": 60, "temperature": 1, "seed": 1, "ignore_eos": True}
            data = json.dumps({**body, "stream": number % 2 == 0}).encode()
            head = {"Content-Type": "application/json", "Authorization": "Bearer 0123456789abcdef"}
            with urlopen(Request(f"{address[0]}/v1/completions", data, head), timeout=120) as answer:
                text = answer.read().decode()
            if number % 2:
                return str(json.loads(text)["choices"][0]["text"])
            lines = [own.removeprefix("data: ") for own in text.split("\n\n") if own]
            if lines[-1] != "[DONE]":
                return str(json.loads(lines[-1])["error"]["code"])
            return "".join(json.loads(own)["choices"][0]["text"] for own in lines[:-1])

        alone = [ask(n) for n in range(count)]
        with ThreadPoolExecutor(16) as pool:
            found = [pool.submit(ask, n) for n in range(count)]
            wait_for(found[count // 8].done)
            os.kill(before[0] or 0, signal.SIGKILL)
            answers = [own.result() for own in found]
        assert all(own in (wanted, "replica_lost") for own, wanted in zip(answers, alone, strict=True))
        assert sum(own == wanted for own, wanted in zip(answers, alone, strict=True)) >= count / 2
        wait_for(lambda: all(own.port for own in replicas) and replicas[0].pid != before[0])
        assert ask(1) == alone[1]
    finally:
        server.stop()
        thread.join(60)
    assert not thread.is_alive()
    assert [own.status for own in replicas] == [0, 0], "they end in good order"


@pytest.mark.slow  # a process
def test_what_a_replica_can_not_open_it_says_in_a_line(tmp_path: Path) -> None:
    config = ServerConfig((ModelSpec(str(tmp_path / "nowhere")),), replicas=2)
    (tmp_path / "serve.yaml").write_text(dump_yaml(config), encoding="utf-8")
    command = [sys.executable, "-m", "transpect.serve.http.replicas.child", str(tmp_path / "serve.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode and ended.stderr.startswith("error: ") and len(ended.stderr.splitlines()) == 1


def wait_for(holds: Callable[[], Any]) -> None:
    import time

    end = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
