"""Actions and the page of several workers, each of them an app of its own."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from prometheus_client import CollectorRegistry

from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.live.actions import Action, ActionRefusedError
from efo_service.web.live.feed import Feed
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
async def workers(nursery, monkeypatch):
    """Return the endpoints of two workers, what they were asked to do, and which shard each of them reads."""
    monkeypatch.setattr("efo_service.web.page_routes.Feed", partial(Feed, interval=0.0))
    performed, ports, reads = [], {}, {"w-1": "a", "w-2": "b"}

    async def worker(name: str) -> None:
        async def take() -> Snapshot:
            live = Live(reads[name], "current", name, "live")
            return Snapshot((view(live, worker=name), view(Live("s", "current", name, "live"), stream=f"of-{name}")))

        async def perform(action: Action) -> None:
            if action.action == "seek":
                raise ActionRefusedError("the sink keeps the position")
            performed.append((name, action))

        health, guard = Health(clock=lambda: 0.0), Guard(Access(TOKEN))
        app = create_app(health, CollectorRegistry(), dict, Page(take, perform), guard)
        ports[name] = int((await nursery.start(serve, app, "127.0.0.1", 0)).rpartition(":")[2])

    await worker("w-1")
    await worker("w-2")
    return WorkerEndpoints(ServiceAddress("127.0.0.1", 0, TOKEN), lambda: {**ports, "w-3": None}), performed, reads


async def test_the_snapshot_has_all_workers(workers):
    endpoints, _, _ = workers
    snapshot = await trio.to_thread.run_sync(endpoints.snapshot)
    assert {worker.id for worker in snapshot.streams[0].workers} == {"w-1", "w-2", "w-3"}


async def test_an_action_is_done_by_the_worker_that_reads_the_shard(workers):
    """Though nobody looks at the page: programs post actions, too."""
    endpoints, performed, _ = workers
    pause = Action("pause", "b", stream="orders")
    await trio.to_thread.run_sync(endpoints.act, pause)
    assert performed == [("w-2", pause)]
    with pytest.raises(ActionRefusedError, match="none of these workers reads c now"):
        await trio.to_thread.run_sync(endpoints.act, Action("pause", "c"))
    with pytest.raises(ActionRefusedError, match="the sink keeps the position"):
        await trio.to_thread.run_sync(endpoints.act, Action("seek", "a", to="latest"))


async def test_an_action_follows_a_shard_that_another_worker_has_taken(workers):
    endpoints, performed, reads = workers
    await trio.to_thread.run_sync(endpoints.snapshot)
    reads["w-1"], reads["w-2"] = "b", "a"
    await trio.to_thread.run_sync(endpoints.act, Action("pause", "b"))
    assert [name for name, _ in performed] == ["w-1"]


async def test_a_shard_of_several_streams_needs_the_name_of_its_stream(workers):
    endpoints, performed, _ = workers
    with pytest.raises(ActionRefusedError, match="several streams have a shard s: name one of them as stream"):
        await trio.to_thread.run_sync(endpoints.act, Action("pause", "s"))
    await trio.to_thread.run_sync(endpoints.act, Action("pause", "s", stream="of-w-2"))
    assert [name for name, _ in performed] == ["w-2"]
