"""Traces: a request is a span under its caller's, and what the engine did for it lies inside."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from transpect.base.errors import ConfigError
from transpect.serve.http.tracing import NO_TRACING, OpenTelemetry, tracing_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY = {"prompt": "The", "max_tokens": 4, "ignore_eos": True}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(app: Any, exporter: InMemorySpanExporter) -> Any:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return app(tracing=OpenTelemetry(provider))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompts", [1, 2])
def test_a_request_is_a_span_with_its_parts(stream: bool, prompts: int, traced: Any, exporter: Any) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    body = {**BODY, "prompt": ["The"] * prompts, "stream": stream}
    assert traced("/v1/completions", body, headers=headers).status == 200
    *parts, whole = exporter.get_finished_spans()
    assert whole.name == "POST /v1/completions" and whole.kind.name == "SERVER"
    assert f"{whole.context.trace_id:032x}" == TRACE and f"{whole.parent.span_id:016x}" == PARENT
    told = dict(whole.attributes)
    assert told["transpect.request_id"] == "mine" and told["http.response.status_code"] == 200
    assert told["gen_ai.usage.output_tokens"] == 4 * prompts
    assert [own.name for own in parts] == ["queue", "prefill", "decode"] * prompts
    for number in range(prompts):
        queue, prefill, decode = parts[3 * number : 3 * number + 3]
        assert queue.end_time <= prefill.end_time <= decode.end_time
        assert abs(queue.end_time - prefill.start_time) < 1e6 and abs(prefill.end_time - decode.start_time) < 1e6
    for own in parts:
        assert own.parent.span_id == whole.context.span_id and own.attributes["transpect.request_id"] == "mine"
        assert own.start_time <= own.end_time


def test_what_is_refused_is_a_span_alone(traced: Any, exporter: Any) -> None:
    assert traced("/v1/completions", {"prompt": 1}, headers={"traceparent": "nonsense"}).status == 400
    assert traced("/nowhere").status == 404
    first, second = exporter.get_finished_spans()
    assert first.parent is None and first.attributes["http.response.status_code"] == 400
    assert second.name == "GET other"


def test_the_environment_says_whether_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for off in ({}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}):
        assert tracing_of(off) is NO_TRACING
    on = tracing_of({"OTEL_TRACES_EXPORTER": "console"})
    assert isinstance(on, OpenTelemetry)
    on.close()
    with pytest.raises(ConfigError, match="no such exporter"):
        tracing_of({"OTEL_TRACES_EXPORTER": "nowhere"})
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match="transpect\\[otel\\]"):
        tracing_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})


def test_off_nothing_is_imported() -> None:
    code = "import sys, transpect.serve.http.tracing as t; t.tracing_of({}); sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
