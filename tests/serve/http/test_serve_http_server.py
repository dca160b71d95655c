"""The server on a real port: the real client; clients that hang up, dribble or do not read; an end in good order."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from typing import Any

import openai
import pytest

from transpect.lm import LanguageModel
from transpect.serve import EngineConfig, Handle
from transpect.serve.http.limits import Limits

LONG = {"model": "writer", "prompt": "The", "max_tokens": 90, "temperature": 1, "seed": 1, "ignore_eos": True}


def until(holds: Any, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def raw(port: int, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(data)
    return connection


def post(path: str, body: Any, extra: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    )
    return f"{head}{extra}\r\n".encode() + data


def all_of(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Engines whose requests wait after their third token until this is set, or until they are cancelled."""
    go = threading.Event()
    put = Handle.put

    def waiting(self: Any, event: Any) -> None:
        put(self, event)
        if self.usage.completion_tokens == 3:
            self.wake()
            while not go.wait(0.002) and not self.done:
                pass

    monkeypatch.setattr(Handle, "put", waiting)
    return go


def test_the_openai_client_works_unmodified(build: Any, listen: Any) -> None:
    with listen(build("writer", "vectors")) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        assert {own.id for own in client.models.list()} >= {"writer", "vectors"}
        messages: Any = [{"role": "user", "content": "小猫"}]
        answer = client.chat.completions.create(model="writer", messages=messages, max_tokens=5, temperature=0)
        text = answer.choices[0].message.content
        assert answer.choices[0].finish_reason == "length" and answer.usage and answer.usage.completion_tokens == 5
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(
            client.chat.completions.create(model="writer", messages=messages, max_tokens=5, temperature=0, **options)
        )
        assert "".join(own.choices[0].delta.content or "" for own in chunks if own.choices) == text
        assert chunks[-1].usage == answer.usage
        done = client.completions.create(model="writer", prompt="The", max_tokens=3, logprobs=1, echo=True)
        assert done.choices[0].text.startswith("The")
        assert len(client.embeddings.create(model="vectors", input=["a", "b"]).data[0].embedding) == 16
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(model="writer", messages=messages, n=100)
        assert (bad.value.param, bad.value.type) == ("n", "invalid_request_error")
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="nobody", messages=messages)
        assert missing.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_frees_what_it_held(
    stream: bool, build: Any, listen: Any, slow: threading.Event
) -> None:
    service = build()
    engine = service.models.all[0].engine
    with listen(service) as server:
        connection = raw(server.port, post("/v1/completions", {**LONG, "stream": stream}))
        assert until(lambda: engine.stats().running == 1)
        if stream:
            assert b"200 OK" in connection.recv(100)
        connection.close()
        assert until(lambda: engine.stats().running == 0, 1.0), "within a second"
        assert until(lambda: service.active == 0, 1.0)
        slow.set()
        assert b'"finish_reason":"length"' in all_of(
            raw(server.port, post("/v1/completions", LONG, "Connection: close\r\n"))
        )


def test_a_client_that_hangs_up_is_not_read_for(build: Any, listen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read, embed = list[int](), LanguageModel.embed

    def counting(self: LanguageModel, texts: Any, **options: Any) -> Any:
        read.append(len(texts))
        time.sleep(0.02)
        return embed(self, texts, **options)

    monkeypatch.setattr(LanguageModel, "embed", counting)
    service = build("vectors", engine=EngineConfig(batch_size=2))
    with listen(service) as server:
        connection = raw(server.port, post("/v1/embeddings", {"input": ["The"] * 2000}))
        assert until(lambda: len(read) > 2)
        connection.close()
        assert until(lambda: service.active == 0, 1.0), "within a second"
        assert b"200 OK" in all_of(raw(server.port, post("/v1/embeddings", {"input": "a"}, "Connection: close\r\n")))
        assert sum(read) < 1000


def test_dribbling_connections_are_closed_and_harm_nobody(build: Any, listen: Any) -> None:
    with listen(build(limits=Limits(receive_seconds=0.3, send_seconds=0.3))) as server:
        head = post("/v1/completions", LONG)
        started = time.monotonic()
        dribbling = [raw(server.port, head[:length]) for length in (0, 1, 30, 90, len(head) - 5) for _ in range(4)]
        live = raw(server.port, post("/v1/completions", {**LONG, "stream": True}, "Connection: close\r\n"))
        assert b"data: [DONE]" in all_of(live)
        for connection in dribbling:
            assert all_of(connection).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - started < 10
        assert until(lambda: not server.server.server_state.connections)


def test_a_reader_that_does_not_read_is_cut_off(app: Any) -> None:
    """Below the network: the third piece is never taken."""
    api = app(limits=Limits(send_seconds=0.1))
    cut: list[bool] = []

    class Connection:
        def abort(self) -> None:
            cut.append(True)

    answer = api("/v1/completions", {**LONG, "stream": True}, takes=3, state={"connection": Connection()})
    assert cut == [True] and answer.status == 200 and len(answer.events) == 2
    assert until(lambda: api.service.models.all[0].engine.stats().running == 0, 1.0)
    assert api.service.active == 0


@pytest.mark.slow
def test_a_reader_that_does_not_read_is_cut_off_on_a_network(build: Any, listen: Any) -> None:
    service = build(limits=Limits(send_seconds=0.3))
    with listen(service) as server:
        body = {"model": "writer", "prompt": ["ab" * 20] * 60, "max_tokens": 45, "n": 4, "temperature": 1}
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(post("/v1/completions", {**body, "ignore_eos": True, "stream": True, "logprobs": 5}))
        assert until(lambda: service.active == 1)
        assert until(lambda: service.active == 0, 60)
        assert until(lambda: not server.server.server_state.connections)
        connection.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: " + b"x" * 17_000 + b"\r\n\r\n", b"431"),
        (b"GET /health?" + b"x" * 300_000, b"431"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01", b"400"),
    ],
    ids=["header", "target", "nonsense", "length", "two lengths", "encoding", "no host", "tls"],
)
def test_what_is_no_http_is_refused(data: bytes, status: bytes, server: Any) -> None:
    assert all_of(raw(server.port, data)).startswith(b"HTTP/1.1 " + status)


def test_requests_sent_ahead_are_answered_in_turn(server: Any) -> None:
    short = {**LONG, "max_tokens": 1}
    ahead = post("/v1/completions", short) * 3 + post("/v1/completions", short, "Connection: close\r\n")
    found = all_of(raw(server.port, ahead))
    assert found.count(b"HTTP/1.1 200 OK") == 4


def test_a_body_in_chunks_is_bounded_too(server: Any) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    small = json.dumps({**LONG, "max_tokens": 1}).encode()
    with raw(server.port, head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(small), small)) as connection:
        assert b"200 OK" in connection.recv(1000)
    connection = raw(server.port, head)
    for _ in range(40):
        connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
    connection.sendall(b"0\r\n\r\n")
    assert all_of(connection).startswith(b"HTTP/1.1 413")
    said = post("/v1/completions", {}).replace(b"Content-Length: 2", b"Content-Length: 99999999")
    connection = raw(server.port, said)
    assert connection.recv(1000).startswith(b"HTTP/1.1 413"), "before the body is there"
    connection.close()


def test_more_connections_than_there_may_be_are_refused_at_once(build: Any, listen: Any) -> None:
    with listen(build(limits=Limits(connections=3))) as server:
        held = [raw(server.port) for _ in range(3)]
        assert until(lambda: len(server.server.server_state.connections) == 3)
        assert all_of(raw(server.port)).startswith(b"HTTP/1.1 503")
        for connection in held:
            connection.close()
        assert until(lambda: not server.server.server_state.connections)
        assert b"200 OK" in all_of(
            raw(server.port, post("/v1/completions", {**LONG, "max_tokens": 1}, "Connection: close\r\n"))
        )


def test_an_overloaded_engine_is_a_429_at_once(build: Any, listen: Any, slow: threading.Event) -> None:
    service = build(engine=EngineConfig(max_waiting=2, max_rows=1))
    engine = service.models.all[0].engine
    with listen(service) as server:
        held = []
        for running, waiting in ((1, 0), (1, 1), (1, 2)):
            held.append(raw(server.port, post("/v1/completions", LONG)))
            assert until(lambda: (engine.stats().running, engine.stats().waiting) == (running, waiting))  # noqa: B023
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        for _ in range(5):
            client.request("POST", "/v1/completions", json.dumps(LONG), {"content-type": "application/json"})
            answer = client.getresponse()
            body = json.loads(answer.read())
            assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1
            assert body["error"]["type"] == "rate_limit_error"
        for connection in held:
            connection.close()
        slow.set()
        assert until(lambda: service.active == 0)


def test_health_is_truthful_and_the_engine_comes_back(build: Any, listen: Any, slow: threading.Event) -> None:
    service = build()
    engine = service.models.all[0].engine
    with listen(service) as server:
        live = raw(server.port, post("/v1/completions", {**LONG, "stream": True}, "Connection: close\r\n"))
        assert until(lambda: engine.stats().running == 1)
        slow.set()
        engine.stop()
        ended = all_of(live)
        assert b"[DONE]" in ended or b'"code":"engine_dead"' in ended
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        seen = set()

        def status(path: str) -> int:
            client.request("GET", path)
            answer = client.getresponse()
            answer.read()
            return answer.status

        assert until(lambda: seen.add(status("/health")) or 200 in seen)
        assert until(lambda: status("/ready") == 200)
        assert service.models.all[0].restarts == 1
        assert b"200 OK" in all_of(
            raw(server.port, post("/v1/completions", {**LONG, "max_tokens": 1}, "Connection: close\r\n"))
        )


@pytest.mark.parametrize("seconds", [20.0, 0.2])
def test_an_end_in_good_order(seconds: float, build: Any, listen: Any, slow: threading.Event) -> None:
    """What runs is finished, or told why not; what is new is refused, and nothing is cut off in silence."""
    service = build(limits=Limits(drain_seconds=seconds))
    engine = service.models.all[0].engine
    with listen(service) as server:
        stream = raw(server.port, post("/v1/completions", {**LONG, "stream": True}))
        assert until(lambda: engine.stats().running == 1)
        whole = raw(server.port, post("/v1/completions", LONG))
        assert until(lambda: service.active == 2)
        server.server.handle_exit(15, None)
        assert until(lambda: service.draining)
        answer = all_of(raw(server.port, post("/v1/completions", LONG)))
        assert answer.startswith(b"HTTP/1.1 503") and b'"code":"shutting_down"' in answer
        assert all_of(
            raw(server.port, b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        ).startswith(b"HTTP/1.1 503")
        if seconds > 1:
            slow.set()
            assert b"data: [DONE]" in all_of(stream)
            assert b'"finish_reason":"length"' in all_of(whole)
        else:
            ended = all_of(stream)
            assert b'"code":"shutting_down"' in ended and b"[DONE]" not in ended
            assert all_of(whole).startswith(b"HTTP/1.1 503")
            slow.set()
