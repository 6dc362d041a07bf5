"""What the whole service tells over HTTP while Kinesis is frozen, or its lease store or its sink is gone.

The service, its consumer and FakeKinesis run on one virtual clock, which only the tests move. HTTP goes through a
socket.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx2
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from efo.consumer.opening import open_consumer
from efo.testing import FakeKinesis
from efo.testing.faults import Stall
from efo.testing.faults.script import When
from efo_service.app import run
from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration
from efo_service.factories.sinks import open_sink
from efo_service.streams.parts import Parts
from efo_service.telemetry.sdk import telemetry
from tests.memory_sink import SINKS, MemorySink
from tests.stores import UnreachableStore


class Service:
    """The service under test, as its operator sees it."""

    def __init__(
        self, clock, url: str, fake: FakeKinesis, store: UnreachableStore, sink: MemorySink, lines: list[dict]
    ) -> None:
        self._lines = lines
        self.fake = fake
        self.store = store
        self.sink = sink
        self._clock = clock
        self._url = url

    async def passes(self, seconds: float) -> None:
        """Let virtual time pass in small steps, and everything happen that is due."""
        for _ in range(round(seconds * 10)):
            await trio.testing.wait_all_tasks_blocked()
            self._clock.jump(0.1)
        await trio.testing.wait_all_tasks_blocked()

    def logged(self) -> list[dict]:
        """Return the lines of the log since the service was ready, from "info" on, but those about its readiness."""
        return [
            line for line in self._lines if line["log_level"] != "debug" and line["event"] not in {"ready", "not_ready"}
        ]

    async def get(self, path: str) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=self._url, trust_env=False) as client:
            return await client.get(path)

    async def ready(self) -> tuple[int, list[str]]:
        response = await self.get("/readyz")
        return response.status_code, response.json()["problems"]

    async def status(self) -> dict:
        return (await self.get("/status")).json()

    async def metric(self, name: str) -> list[tuple[dict, float]]:
        families = text_string_to_metric_families((await self.get("/metrics")).text)
        return [(s.labels, s.value) for family in families for s in family.samples if s.name == name]


@pytest.fixture
def sink_name(tmp_path, monkeypatch) -> str:
    """Install a sink as another package would, and return the name of this test's one."""
    directory = tmp_path / "site-packages" / "memory_sink-1.0.dist-info"
    directory.mkdir(parents=True)
    directory.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: memory-sink\nVersion: 1.0\n")
    directory.joinpath("entry_points.txt").write_text("[efo.sinks]\nmemory = tests.memory_sink:open_memory\n")
    monkeypatch.syspath_prepend(str(directory.parent))
    return str(tmp_path)


@pytest.fixture
async def service(mock_clock, nursery, sink_name):
    store = UnreachableStore()
    settings = Settings(
        kinesis={"stream": "orders"},
        leases={"worker_id": "w-1"},
        relay={"sink": "memory", "options": {"name": sink_name}, "retry_seconds": 600.0, "commit_records": 10},
        service={"port": 0, "log_level": "info"},
    )
    with telemetry("w-1", environ={}) as sdk, capture_logs() as lines:
        async with FakeKinesis() as fake:
            fake.create_stream("orders", shards=2)

            @asynccontextmanager
            async def opened(part):
                yield part

            parts = Parts(
                lambda *_: opened(fake.kinesis("orders")),
                lambda *_: opened(store),
                open_sink,
                open_consumer,
            )

            async def start(task_status):
                await run(Configuration.of(settings), sdk, parts=parts, task_status=task_status)

            service = Service(mock_clock, await nursery.start(start), fake, store, SINKS[sink_name], lines)
            for _ in range(30):
                await service.passes(1)
                if [shard["lag_seconds"] for shard in (await service.status())["shards"]] == [0, 0]:
                    break
            lines.clear()
            yield service
            nursery.cancel_scope.cancel()


async def test_a_frozen_stream_is_seen_in_lag_status_problems_and_readiness(mock_clock, service):
    assert await service.ready() == (200, [])
    healthy = await service.status()
    assert (healthy["problems"], [s["condition"] for s in healthy["shards"]]) == ([], ["current"] * 2)
    assert [value for _, value in await service.metric("efo_consumer_lag_seconds")] == [0, 0]

    fault = service.fake.faults.add(Stall(), When(probability=1.0))
    await service.passes(11)

    code, problems = await service.ready()
    assert code == 503
    (problem,) = problems
    assert problem.startswith("2 of 2 shards (shardId-000000000000, shardId-000000000001): frozen: ")
    status = await service.status()
    assert status["problems"] == problems
    for shard in status["shards"]:
        assert (shard["condition"], shard["subscription"], shard["millis_behind_latest"]) == ("frozen", "live", 0)
        assert 10 < shard["lag_seconds"] < 20
        assert shard["lag_seconds"] == shard["last_event_age_seconds"]
    lags = [value for _, value in await service.metric("efo_consumer_lag_seconds")]
    assert len(lags) == 2
    assert min(lags) > 10
    ages = [value for _, value in await service.metric("efo_subscription_event_age_seconds")]
    assert ages == lags
    states = [labels["efo_shard_condition"] for labels, _ in await service.metric("efo_shard_status")]
    assert states == ["frozen", "frozen"]

    await service.passes(100)  # each silence ends after 35 s, and the shards are subscribed again in vain
    service.fake.faults.remove(fault)
    await service.passes(50)
    began, ended = service.logged()
    assert (began["event"], began["error_type"], began["log_level"]) == ("kinesis_outage_began", "silence", "warning")
    assert (ended["event"], ended["error_type"]) == ("kinesis_outage_ended", "silence")
    assert ended["failures"] >= 4
    assert await service.ready() == (200, [])
    assert [value for _, value in await service.metric("efo_consumer_lag_seconds")] == [0, 0]


async def test_with_a_dead_lease_store_readiness_turns_when_the_shards_stop_and_nothing_stale_is_reported(
    mock_clock, service
):
    assert (await service.status())["lease_table"] == "known"
    assert [value for _, value in await service.metric("efo_workers")] == [1]
    service.store.is_down, down_at = True, mock_clock.current_time()
    stopped_after = 0.0
    while [shard["subscription"] for shard in (await service.status())["shards"]] != ["no_lease"] * 2:
        assert await service.ready() == (200, [])
        await service.passes(0.5)
        stopped_after += 0.5
        assert stopped_after <= 10
    code, problems = await service.ready()
    assert code == 503
    assert any("no longer read: the lease could not be renewed" in problem for problem in problems)

    await service.passes(10)
    gone = ("efo_workers", "efo_leases", "efo_shards")
    assert [await service.metric(name) for name in gone] == [[], [], []]
    status = await service.status()
    assert (status["lease_table"], status["shard_counts"], status["lease_counts"], status["workers"]) == (
        "unknown",
        None,
        None,
        None,
    )
    assert [shard["condition"] for shard in status["shards"]] == ["no_lease", "no_lease"]
    lags = [value for _, value in await service.metric("efo_consumer_lag_seconds")]
    assert len(lags) == 2
    assert min(lags) > 10
    assert (await service.get("/livez")).status_code == 200

    assert [line["event"] for line in service.logged()] == ["lease_store_outage_began"]
    service.store.is_down, lasted = False, mock_clock.current_time() - down_at
    await service.passes(30)  # leases are taken with jitter
    while len(service.logged()) < 4:  # a subscription takes steps of real sockets, too
        await service.passes(1)
    assert sorted(line["event"] for line in service.logged()) == [
        "lease_store_outage_began",
        "lease_store_outage_ended",
        "shard_started",
        "shard_started",
    ]
    began, ended = (line for line in service.logged() if line["event"] != "shard_started")
    assert (began["error_type"], began["log_level"]) == ("lease_store_unavailable", "warning")
    assert (ended["event"], ended["error_type"]) == ("lease_store_outage_ended", "lease_store_unavailable")
    assert ended["duration"] == pytest.approx(lasted, abs=1.0)  # two lease scan intervals
    assert ended["failures"] > 20
    assert await service.ready() == (200, [])
    status = await service.status()
    assert (status["lease_table"], status["workers"], status["lease_counts"]["held"]) == ("known", 1, 2)
    assert [value for _, value in await service.metric("efo_workers")] == [1]


async def test_a_dead_sink_is_seen_in_lag_status_problems_readiness_and_two_lines_and_nothing_is_lost(
    mock_clock, service
):
    service.sink.is_down, down_at = True, mock_clock.current_time()
    for number in range(80):  # a checkpoint that does not move is a problem after a minute
        for key in range(8):
            service.fake.put("orders", f"key-{key}", b"%d" % number)
        await service.passes(1)

    code, problems = await service.ready()
    assert code == 503
    (problem,) = problems
    assert problem.startswith(
        "2 of 2 shards (shardId-000000000000, shardId-000000000001): not committed: the sink has not taken for "
    )
    assert "(no space left)" in problem
    status = await service.status()
    assert problem in status["problems"]
    outage, unsaved = (one for one in status["problems"] if one != problem)
    assert outage.startswith("the sink has failed for ")
    assert "sink_full" in outage
    assert "free space" in outage
    assert "that no saved checkpoint includes" in unsaved
    assert [shard["condition"] for shard in status["shards"]] == ["uncommitted", "uncommitted"]
    lags = [value for _, value in await service.metric("efo_consumer_lag_seconds")]
    assert len(lags) == 2
    assert min(lags) > 30
    assert [line["event"] for line in service.logged()] == ["sink_outage_began"]
    assert (service.sink.committed, (await service.get("/livez")).status_code) == (0, 200)

    service.sink.is_down, lasted = False, mock_clock.current_time() - down_at
    await service.passes(20)
    began, ended = service.logged()
    assert (began["event"], began["error_type"], began["log_level"]) == ("sink_outage_began", "sink_full", "warning")
    assert (ended["event"], ended["error_type"]) == ("sink_outage_ended", "sink_full")
    assert ended["duration"] == pytest.approx(lasted, abs=10.0)
    assert service.sink.committed == 80 * 8
    assert await service.ready() == (200, [])
    assert (await service.status())["problems"] == []
    assert [value for _, value in await service.metric("efo_consumer_lag_seconds")] == [0, 0]
