"""Which replica of Ray Serve a request goes to: the one that has read how it begins (see `http.replicas.routing`)."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from transpect.serve.http.replicas.fleet import Asked
from transpect.serve.http.replicas.routing import Router

__all__ = ["BeginningsRouter"]


class BeginningsRouter(RequestRouter):
    """Of the handle of one `Front`: it knows what went through there. Requests are ``answer(asked, tried)``; who was
    tried already is asked again only where there is nobody else."""

    def initialize_state(self, **_: Any) -> None:
        """See `RequestRouter`."""
        self._sent = Router()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The replicas, the best one first, then the least loaded ones, each a rank of its own."""
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # all of them have been looked at
        asked, tried = pending_request.args
        assert isinstance(asked, Asked)
        loads = {own.replica_id.unique_id: self._load(own) for own in candidate_replicas}
        fresh = {name: load for name, load in loads.items() if name not in tried} or loads
        best = self._sent.choose(asked.body, asked.salt, fresh)

        def rank(own: RunningReplica) -> tuple[bool, bool, int]:
            name = own.replica_id.unique_id
            return name != best, name not in fresh, loads[name]

        return [[own] for own in sorted(candidate_replicas, key=rank)]

    def on_replica_actor_died(self, replica_id: Any) -> None:
        """See `RequestRouter`."""
        super().on_replica_actor_died(replica_id)
        self._sent.forget(replica_id.unique_id)

    def _load(self, replica: RunningReplica) -> int:
        return self.replica_queue_len_cache.get(replica.replica_id) or 0
