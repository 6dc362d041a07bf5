"""Views of a stream, for tests of what is made of them."""

from __future__ import annotations

from efo_service.web.live.shard_map import Live, Place
from efo_service.web.live.source import Sentence, StreamView, WorkerView


def place(shard_id: str, generation: int = 0) -> Place:
    return Place(shard_id, 0.0, 1.0, generation, None, (), is_open=True)


def view(*shards: Live, worker: str = "w-1", events: tuple[Sentence, ...] = (), **changes) -> StreamView:
    fields = {
        "stream": "orders",
        "application": "billing",
        "topic": "orders",
        "worker_id": worker,
        "version": "1",
        "draining": False,
        "lease_table": "known",
        "problems": (),
        "workers": (WorkerView(worker, len(shards)),),
        "events": events,
        "places": tuple(place(shard.id) for shard in shards),
        "live": shards,
    }
    return StreamView(**(fields | changes))
