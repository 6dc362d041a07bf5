"""Actions and the page of several workers, each of them an app of its own."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.live.actions import Action, ActionRefusedError
from efo_service.web.live.feed import Feed
from efo_service.web.live.shard_map import Live
from efo_service.web.live.source import Sentence, Snapshot, WorkerView
from efo_service.web.page_routes import Page
from efo_service.web.probe import ServiceAddress
from efo_service.web.security.access import Access
from efo_service.web.security.guard import Guard
from efo_service.web.server import serve
from efo_service.workers.endpoints import WorkerEndpoints, merge_metrics, merge_snapshots, merge_status
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


def metrics_of(number: int) -> list:
    registry = CollectorRegistry()
    Counter("records", "Records.", ["shard"], registry=registry).labels(f"s-{number}").inc(number)
    Gauge("lag", "Lag.", registry=registry).set(10 * number)
    Histogram("age", "Age.", buckets=(1, 2), registry=registry).observe(1.5)
    return list(text_string_to_metric_families(generate_latest(registry).decode()))


def test_each_sample_has_the_worker_and_each_metric_is_reported_once() -> None:
    merged = {metric.name: metric for metric in merge_metrics({"w-1": metrics_of(1), "w-2": metrics_of(2)})}
    assert (merged["records"].type, merged["lag"].type, merged["age"].type) == ("counter", "gauge", "histogram")
    records = {sample.labels["shard"]: sample for sample in merged["records"].samples if sample.name == "records_total"}
    assert [(s.labels["worker"], s.value) for s in records.values()] == [("w-1", 1), ("w-2", 2)]
    assert [(s.labels, s.value) for s in merged["lag"].samples] == [({"worker": "w-1"}, 10), ({"worker": "w-2"}, 20)]
    buckets = [sample for sample in merged["age"].samples if sample.name == "age_bucket"]
    assert [(s.labels["worker"], s.labels["le"], s.value) for s in buckets][:3] == [
        ("w-1", "1.0", 0),
        ("w-1", "2.0", 1),
        ("w-1", "+Inf", 1),
    ]


def test_the_status_of_all_workers_has_the_form_of_one() -> None:
    first = {
        "problems": ["shard a is frozen"],
        "last_errors": [{"system": "sink"}],
        "advice": ["two are not acked: ack them"],
        "lease_table": "unknown",
        "shards": [{"shard_id": "b"}],
        "isolated": [{"shard_id": "c"}],
    }
    second = {
        "problems": [],
        "lease_table": "known",
        "shard_counts": {"consuming": 2},
        "lease_counts": {"held": 2},
        "shards": [{"shard_id": "a"}],
        "isolated": [],
    }
    assert merge_status({"w-1": first, "w-2": second}) == {
        "problems": ["w-1: shard a is frozen"],
        "last_errors": [{"worker_id": "w-1", "system": "sink"}],
        "advice": ["w-1: two are not acked: ack them"],
        "lease_table": "known",
        "shard_counts": {"consuming": 2},
        "lease_counts": {"held": 2},
        "shards": [{"worker_id": "w-2", "shard_id": "a"}, {"worker_id": "w-1", "shard_id": "b"}],
        "isolated": [{"worker_id": "w-1", "shard_id": "c"}],
    }


def test_the_names_of_the_only_stream_are_those_that_the_workers_read_now() -> None:
    names = {"stream": "orders", "application": "a", "consumer": "a", "topic": "of-the-last-reload"}
    merged = merge_status({"w-1": {**names, "worker_id": "w-1"}, "w-2": {**names, "worker_id": "w-2"}})
    assert {key: value for key, value in merged.items() if isinstance(value, str)} == {
        **names,
        "lease_table": "unknown",
    }


def test_workers_that_tell_nothing_leave_the_lease_table_unknown() -> None:
    assert merge_status({}) == {
        "problems": [],
        "last_errors": [],
        "advice": [],
        "lease_table": "unknown",
        "shard_counts": None,
        "lease_counts": None,
        "shards": [],
        "isolated": [],
    }


def test_the_page_of_all_workers_has_each_shard_as_its_reader_knows_it() -> None:
    by_first = (Live("a", "current", "w-1", "live", lag=0.5), Live("b", "other_worker", "w-2"))
    by_second = (Live("a", "other_worker", "w-1"), Live("b", "unread", "w-2", "live", lag=12.0))
    workers = (WorkerView("w-1", 1), WorkerView("w-2", 1, answers=False))
    first = view(*by_first, workers=workers, problems=("slow",), events=(Sentence(1, 5.0, "info", "late", "w-1"),))
    second = view(*by_second, worker="w-2", events=(Sentence(1, 4.0, "info", "early", "w-2"),), lease_table="unknown")
    merged = merge_snapshots({"w-1": Snapshot((first,)), "w-2": Snapshot((second,)), "w-3": None})
    (stream,) = merged.streams
    assert stream.live == (by_first[0], by_second[1])
    assert [(worker.id, worker.answers) for worker in stream.workers] == [("w-1", True), ("w-2", True), ("w-3", False)]
    assert [event.text for event in stream.events] == ["early", "late"]
    assert (stream.problems, stream.worker_id, stream.lease_table) == (("w-1: slow",), "", "known")


def test_a_page_without_an_answer_has_no_streams() -> None:
    assert merge_snapshots({"w-1": None}) == Snapshot(())


def test_the_status_of_workers_with_several_streams_has_each_stream_once() -> None:
    def status(worker: str, *shards: tuple[str, str]) -> dict:
        streams = [
            {"name": name, "stream": name, "topic": "t", "lease_table": "known", "problems": [],
             "shards": [{"shard_id": shard}], "isolated": [], "worker_id": worker}
            for name, shard in shards
        ]  # fmt: skip
        return {"problems": [f"orders: {worker} is slow"], "streams": streams}

    merged = merge_status(
        {"w-1": status("w-1", ("orders", "a"), ("clicks", "b")), "w-2": status("w-2", ("orders", "c"))}
    )
    assert merged["problems"] == ["w-1: orders: w-1 is slow", "w-2: orders: w-2 is slow"]
    assert [(one["name"], one["stream"], one["topic"], one["lease_table"]) for one in merged["streams"]] == [
        ("orders", "orders", "t", "known"),
        ("clicks", "clicks", "t", "known"),
    ]
    assert [[(row["worker_id"], row["shard_id"]) for row in one["shards"]] for one in merged["streams"]] == [
        [("w-1", "a"), ("w-2", "c")],
        [("w-1", "b")],
    ]
