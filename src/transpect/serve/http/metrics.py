"""What the server does, in numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from transpect.serve.http.models import Models

__all__ = ["Metrics"]

_STATES: Final = ("starting", "ready", "draining", "dead")
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)
_GAPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metrics:
    """Counters of one server, apart from those of any other in the same process.

    Args:
        models: whose engines are asked when somebody looks.
    """

    def __init__(self, models: Models) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engines(models))
        own = self._registry
        self.requests = Counter("transpect_requests", "Requests answered.", ("route", "model", "status"), registry=own)
        self.seconds = Histogram(
            "transpect_request_seconds", "Until an answer was complete.", ("route",), buckets=_SECONDS, registry=own
        )
        self.first_token = Histogram(
            "transpect_first_token_seconds",
            "Until the first token of an answer.",
            ("model",),
            buckets=_SECONDS,
            registry=own,
        )
        self.between_tokens = Histogram(
            "transpect_between_tokens_seconds",
            "Between two tokens of an output.",
            ("model",),
            buckets=_GAPS,
            registry=own,
        )
        self.tokens = Counter("transpect_tokens", "Tokens of requests.", ("model", "of"), registry=own)

    def page(self) -> bytes:
        """All of them, as text."""
        return generate_latest(self._registry)


class _Engines(Collector):
    """What the engines say of themselves."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """One family a number."""
        gauges = ("running", "waiting", "blocks_used", "blocks_cached", "blocks_total")
        counters = ("prefix_hits", "prefix_queries", "preemptions", "passes", "tokens_read", "tokens_written")
        stats = [(own, own.engine.stats()) for own in self._models.all]
        for name in gauges:
            gauge = GaugeMetricFamily(f"transpect_engine_{name}", f"{name} of the engine.", labels=("model",))
            for own, said in stats:
                gauge.add_metric((own.id,), getattr(said, name))
            yield gauge
        for name in counters:
            counter = CounterMetricFamily(f"transpect_engine_{name}", f"{name} of the engine.", labels=("model",))
            for own, said in stats:
                counter.add_metric((own.id,), getattr(said, name))
            yield counter
        state = GaugeMetricFamily("transpect_engine_state", "1 in the engine's state.", labels=("model", "state"))
        restarts = CounterMetricFamily("transpect_engine_restarts", "Starts after a failure.", labels=("model",))
        for own, said in stats:
            for name in _STATES:
                state.add_metric((own.id, name), float(said.state == name))
            restarts.add_metric((own.id,), own.restarts)
        yield from (state, restarts)
