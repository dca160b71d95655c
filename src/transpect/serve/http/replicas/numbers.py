"""The numbers of several replicas on one page."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from transpect.serve.http.replicas.fleet import Page

__all__ = ["Numbers"]


class Numbers(Collector):
    """What replicas say of themselves, each with the label ``replica``, and what is said of them.

    Args:
        pages: of each replica, in Prometheus' words.
        known: see `Fleet.numbers`.
        retries: how often another replica was asked.
    """

    def __init__(self, pages: Mapping[str, Page], known: Mapping[str, Mapping[str, float]], retries: int) -> None:
        self._pages, self._retries = pages, retries
        up = {name: float(status == 200) for name, (status, _) in pages.items()}
        self._known = {"up": up, **known}

    def collect(self) -> list[Metric]:
        """One family a number."""
        families: dict[str, Metric] = {}
        for replica, (_, page) in self._pages.items():
            for found in text_string_to_metric_families(page.decode()):
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                for sample in found.samples:
                    family.add_sample(sample.name, {**sample.labels, "replica": replica}, sample.value)
        for name, of in self._known.items():
            gauge = GaugeMetricFamily(f"transpect_replica_{name}", f"{name} of a replica.", labels=("replica",))
            for replica, value in of.items():
                gauge.add_metric((replica,), value)
            families[gauge.name] = gauge
        asked = GaugeMetricFamily("transpect_front_retries", "Requests asked of another replica.", value=self._retries)
        return [*families.values(), asked]
