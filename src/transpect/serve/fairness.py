"""Whose turn it is: weighted fair queueing over tenants, and priorities that waiting outgrows. No torch.

Work is counted in tokens. A request of tenant t that costs c is given the rank

    start = max(V, finish of t),    finish of t ← start + c,    rank = start − priority · `BOOST`,

where V, the virtual time, grows by the cost of each request that begins divided by the number of tenants that have
any. A tenant alone is served in order; of several each gets an equal share of the work, whoever asks for more. V goes
on whatever is served, so a request's rank is the lowest some day, and none waits for ever.

Source: Demers, Keshav and Shenker 1989, "Analysis and Simulation of a Fair Queueing Algorithm", §2; start times as in
Goyal, Vin and Cheng 1996, "Start-time Fair Queueing", §2.
"""

from __future__ import annotations

from collections import Counter

BOOST = 65536
"""Tokens of work that one step of priority is worth."""


class Fairness:
    """Ranks of requests; the lowest goes first."""

    def __init__(self) -> None:
        self._now = 0.0
        self._finish: dict[str, float] = {}
        self._present: Counter[str] = Counter()

    def arrive(self, tenant: str, priority: int, cost: int) -> float:
        """The rank of a request of so many tokens."""
        self._present[tenant] += 1
        start = max(self._now, self._finish.get(tenant, 0.0))
        self._finish[tenant] = start + cost
        return start - priority * BOOST

    def begin(self, cost: int) -> None:
        """A request of so many tokens begins."""
        self._now += cost / max(1, len(self._present))

    def leave(self, tenant: str) -> None:
        """A request of a tenant has ended, or will never begin."""
        self._present[tenant] -= 1
        if not self._present[tenant]:
            del self._present[tenant]
            if self._finish[tenant] <= self._now:
                del self._finish[tenant]
