"""Actions and the page of several workers, each of them an app of its own."""

from __future__ import annotations

import pytest
import trio
from prometheus_client import CollectorRegistry

from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.live.actions import Action, ActionRefusedError
from efo_service.web.live.shard_map import Live
from efo_service.web.live.snapshot import Snapshot
from efo_service.web.page_routes import Page
from efo_service.web.probe import ServiceAddress
from efo_service.web.security.access import Access
from efo_service.web.security.guard import Guard
from efo_service.web.server import serve
from efo_service.workers.endpoints import WorkerEndpoints
from tests.efo_service.web.live.views import view

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
async def workers(nursery):
    """Return the endpoints of two workers, of which each reads a shard, and what they were asked to do."""
    performed, ports = [], {}

    async def worker(name: str, shard_id: str) -> None:
        async def take() -> Snapshot:
            return Snapshot((view(Live(shard_id, "current", name, "live"), worker=name),))

        async def perform(action: Action) -> None:
            if action.action == "seek":
                raise ActionRefusedError("the sink keeps the position")
            performed.append((name, action))

        health, guard = Health(clock=lambda: 0.0), Guard(Access(TOKEN))
        app = create_app(health, CollectorRegistry(), dict, Page(take, perform), guard)
        ports[name] = int((await nursery.start(serve, app, "127.0.0.1", 0)).rpartition(":")[2])

    await worker("w-1", "a")
    await worker("w-2", "b")
    return WorkerEndpoints(ServiceAddress("127.0.0.1", 0, TOKEN), lambda: {**ports, "w-3": None}), performed


async def test_an_action_is_done_by_the_worker_that_reads_the_shard(workers):
    endpoints, performed = workers
    pause = Action("pause", "b")
    with pytest.raises(ActionRefusedError, match="none of these workers is known to read b"):
        await trio.to_thread.run_sync(endpoints.act, pause)
    snapshot = await trio.to_thread.run_sync(endpoints.snapshot)
    assert {worker.id for worker in snapshot.streams[0].workers} == {"w-1", "w-2", "w-3"}
    await trio.to_thread.run_sync(endpoints.act, pause)
    assert performed == [("w-2", pause)]
    with pytest.raises(ActionRefusedError, match="the sink keeps the position"):
        await trio.to_thread.run_sync(endpoints.act, Action("seek", "a", to="latest"))
