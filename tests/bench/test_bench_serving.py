"""The load that servers are measured by: what is sent, what is counted, and what is told when a server fails."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from transpect.bench.formats import FORMATS
from transpect.bench.serving import bars, endless, prompts
from transpect.bench.workers import clients

PIECE = {"choices": [{"text": "a"}]}


class Server(ThreadingHTTPServer):
    """Answers with events and notes what it was asked."""

    def __init__(self, events: list[str], status: int = 200, pause: float = 0.0) -> None:
        self.asked: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.events, self.status, self.pause = events, status, pause


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()
        for event in self.server.events:
            time.sleep(self.server.pause)
            self.wfile.write(f"data: {event}\n\n".encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serving() -> Iterator[Any]:
    servers: list[Server] = []

    def start(*args: Any) -> Server:
        servers.append(Server(*args))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_every_client_sends_its_prompts_and_every_piece_is_seen(serving: Any) -> None:
    server = serving([json.dumps(PIECE)] * 3 + [json.dumps({"choices": [], "usage": {}}), "[DONE]"])
    asked = {"prompts": [["one", "two"], ["three", "four"]], "new": 3}
    answer = clients.load(server.server_port, "own", asked, {"ignore_eos": True})
    clients.load(server.server_port, "own", asked, {"ignore_eos": True})
    turns = [own["prompt"].partition(". ") for own in server.asked]
    assert sorted(text for _, _, text in turns) == ["four", "four", "one", "one", "three", "three", "two", "two"]
    assert len({turn for turn, _, _ in turns[:4]}) == 1 and {turns[0][0]} != {turns[4][0]}  # nothing is asked twice
    assert all(
        (own["model"], own["max_tokens"], own["stream"], own["ignore_eos"]) == ("own", 3, True, True)
        for own in server.asked
    )
    assert answer["count"] == {"throughput": 12} and answer["pieces"] == 3
    assert answer["seconds"]["throughput"] > 0
    assert 0 < answer["sizes"]["first token p50"] <= answer["sizes"]["first token p99"]


def test_waiting_is_that_of_single_pieces(serving: Any) -> None:
    """From a request to the first piece, and from each piece to the next: the pauses of the server, one each."""
    server = serving([json.dumps(PIECE)] * 3 + ["[DONE]"], 200, 0.05)
    sizes = clients.load(server.server_port, "own", {"prompts": [["one"]], "new": 3}, {})["sizes"]
    assert sizes["first token p50"] >= 0.05 and sizes["between p50"] >= 0.04


def test_a_last_piece_ends_an_answer_as_a_word_for_it_does(serving: Any) -> None:
    last = {"choices": [{"text": "", "finish_reason": "length"}]}
    for end in ([json.dumps(last)], [json.dumps(last), "[DONE]"]):
        server = serving([json.dumps(PIECE)] * 3 + end)
        answer = clients.load(server.server_port, "own", {"prompts": [["one"]], "new": 3}, {})
        assert answer["count"] == {"throughput": 3} and answer["pieces"] == 4


@pytest.mark.parametrize(
    ("events", "status", "said"),
    [
        ([json.dumps(PIECE)], 200, "broke off"),
        (["[DONE]"], 200, "broke off"),
        ([json.dumps({"error": {"message": "no room"}})], 200, "no room"),
        ([], 429, "status 429"),
    ],
)
def test_an_answer_that_is_none_is_no_figure(serving: Any, events: list[str], status: int, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        clients.load(serving(events, status).server_port, "own", {"prompts": [["one"]], "new": 3}, {})


def test_a_server_that_ends_says_why() -> None:
    with pytest.raises(RuntimeError, match="ended with 3: no model"):
        clients.started(lambda port: [sys.executable, "-c", "print('no model'); exit(3)"], 64)


def test_prompts_have_everyday_lengths_and_are_not_the_same() -> None:
    texts = [text for own in prompts(16, 2) for text in own]
    assert len(texts) == 32 and len(set(texts)) == 32
    assert {len(text.split()) for text in texts} == {20, 45, 70, 95, 120}


def test_bars_are_those_of_programs_that_have_the_format() -> None:
    assert {peer for peer, _ in bars(FORMATS["int8"])} == {"llama-server"}
    assert {peer for peer, _ in bars(FORMATS["float32"])} == {"llama-server", "transformers"}


def test_a_model_without_an_end_is_the_same_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json").write_text(json.dumps({"eos_token_id": 2, "hidden_size": 8}), encoding="utf-8")
    (own / "model.safetensors").write_bytes(b"weights")
    made = endless(own)
    assert json.loads((made / "config.json").read_text()) == {"eos_token_id": None, "hidden_size": 8}
    assert (made / "model.safetensors").read_bytes() == b"weights"
