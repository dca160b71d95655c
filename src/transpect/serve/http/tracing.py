"""Where the time of a request went, as OpenTelemetry spans: the request, and in it queue, prefill and decode.

It is on where the environment names an exporter (``OTEL_TRACES_EXPORTER``) or an address for one
(``OTEL_EXPORTER_OTLP_ENDPOINT``); its other variables mean what they mean elsewhere. A caller's ``traceparent`` (W3C
Trace Context) becomes the parent. Where it is off, nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from transpect import __version__
from transpect.base.errors import ConfigError

if TYPE_CHECKING:
    from transpect.serve.http.service import Call

__all__ = ["NO_TRACING", "OpenTelemetry", "Tracing", "tracing_of"]

_ADDRESSES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_INSTALL: Final = "pip install 'transpect[otel]'"


class Tracing(ABC):
    """Is told of requests."""

    @abstractmethod
    def begin(self, headers: Mapping[str, str], method: str, route: str) -> Any:
        """A request has come; what stands for it."""

    @abstractmethod
    def onward(self, span: Any) -> list[tuple[bytes, bytes]]:
        """Headers for whoever is asked on behalf of a request."""

    @abstractmethod
    def end(self, call: Call, status: int) -> None:
        """A request has been answered."""

    @abstractmethod
    def close(self) -> None:
        """Send what has not been sent."""


class _NoTracing(Tracing):
    def begin(self, headers: Mapping[str, str], method: str, route: str) -> Any:
        """See `Tracing`."""
        return None

    def onward(self, span: Any) -> list[tuple[bytes, bytes]]:
        """See `Tracing`."""
        return []

    def end(self, call: Call, status: int) -> None:
        """See `Tracing`."""

    def close(self) -> None:
        """See `Tracing`."""


NO_TRACING: Final[Tracing] = _NoTracing()


class OpenTelemetry(Tracing):
    """Makes spans.

    Args:
        provider: a `TracerProvider` of OpenTelemetry's SDK, where they go.
    """

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("transpect", __version__)
        self._words = TraceContextTextMapPropagator()

    def begin(self, headers: Mapping[str, str], method: str, route: str) -> Any:
        """See `Tracing`."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        parent = self._words.extract(headers, Context())
        about = {"http.request.method": method, "http.route": route}
        return self._tracer.start_span(f"{method} {route}", parent, SpanKind.SERVER, about)

    def onward(self, span: Any) -> list[tuple[bytes, bytes]]:
        """See `Tracing`."""
        found: dict[str, str] = {}
        self._words.inject(found, self._inside(span))
        return [(name.encode(), value.encode()) for name, value in found.items()]

    def end(self, call: Call, status: int) -> None:
        """See `Tracing`."""
        from opentelemetry.trace import Status, StatusCode

        span = call.span
        told = {
            "http.response.status_code": status,
            "transpect.request_id": call.id,
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": call.prompt_tokens,
            "gen_ai.usage.output_tokens": call.completion_tokens,
            "gen_ai.response.finish_reasons": [call.ended] if call.ended else (),
        }
        span.set_attributes({name: value for name, value in told.items() if value not in ("", 0, ())})
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        now = time.monotonic()
        for number, times in enumerate(call.times):
            begun = times.begun or now
            first = times.first_token or now
            self._child(span, call, "queue", number, times.submitted, begun)
            if times.begun is not None:
                self._child(span, call, "prefill", number, begun, first)
            if times.first_token is not None:
                self._child(span, call, "decode", number, first, times.ended or now)
        span.end()

    def close(self) -> None:
        """See `Tracing`."""
        self._provider.shutdown()

    def _child(self, span: Any, call: Call, name: str, number: int, start: float, end: float) -> None:
        shift = time.time_ns() - time.monotonic_ns()  # spans are told by the clock on the wall
        about: dict[str, str | int] = {"transpect.request_id": call.id, "transpect.prompt": number}
        start_time, end_time = (int(own * 1e9) + shift for own in (start, max(start, end)))
        self._tracer.start_span(name, self._inside(span), attributes=about, start_time=start_time).end(end_time)

    def _inside(self, span: Any) -> Any:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        return set_span_in_context(span, Context())


def tracing_of(environ: Mapping[str, str]) -> Tracing:
    """What an environment asks for.

    Raises:
        ConfigError: an exporter that is not installed.
    """
    names = environ.get("OTEL_TRACES_EXPORTER", "otlp" if any(environ.get(own) for own in _ADDRESSES) else "none")
    wanted = [own.strip() for own in names.split(",") if own.strip() not in ("", "none")]
    if not wanted or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NO_TRACING
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise ConfigError("traces need OpenTelemetry", value=names, remedy=_INSTALL) from None
    own_name = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "transpect"}
    provider = TracerProvider(resource=Resource.create(own_name))
    protocol = next((environ[own] for own in _PROTOCOLS if environ.get(own)), "http/protobuf")
    for name in wanted:
        entry = _OTLP.get(protocol, protocol) if name == "otlp" else name
        found = [*entry_points(group="opentelemetry_traces_exporter", name=entry)]
        if not found:
            raise ConfigError("no such exporter of traces is installed", value=entry, remedy=_INSTALL)
        provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    return OpenTelemetry(provider)
