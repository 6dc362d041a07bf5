"""The service with fake components: order of start and stop, readiness, signals, metrics."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace

import httpx2
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from efo.consumer.status import ConsumerStatus, status_of
from efo.errors import AccessDeniedError
from efo.events import AdviceGiven, ConsumerOpened, ConsumerReady, EventReceived, ShardStarted, ignore_events
from efo.health import IsolatedShard, LeaseCounts, ShardReading
from efo.kinesis.client import KinesisClient
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Batch, Checkpoint, Record
from efo.protocol.aggregation import AggregateMode
from efo.protocol.assignment.balance import weighted_assignment
from efo.protocol.assignment.placement import zone_assignment
from efo.settings import ConsumerSettings
from efo_service.app import run
from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration
from efo_service.errors import DrainDeadlineError, UnavailableError
from efo_service.factories.sinks import _Reports
from efo_service.relay.destination import Destination
from efo_service.relay.measured import SinkMeter
from efo_service.relay.sink import Part
from efo_service.streams.parts import Parts
from efo_service.telemetry.sdk import telemetry
from tests.readings import NOW, FakeReadings

SHARD = "shardId-000000000000"
BATCH = Batch("s", SHARD, (Record("1", 1.0, b"a", "k"), Record("2", 1.0, b"b", "k")), "3", 1500, 0)


READING = ShardReading(
    SHARD,
    Checkpoint("2"),
    "live",
    NOW - 60,
    NOW - 3,
    subscribed_at=NOW - 60,
    last_event_at=NOW - 4.25,
    millis_behind_latest=1500,
    unsaved_since=NOW - 2,
    read_mode="fanout",
)
READINGS = FakeReadings(READING, counts=LeaseCounts({"held": 1}, 1, {"consuming": 1}))


class FakeShard:
    """A shard stream with one batch. After it, iteration ends when the consumer drains."""

    stream = "orders"
    shard_id = SHARD
    checkpoint = Checkpoint.TRIM_HORIZON
    has_pending = False

    def __init__(self, draining: trio.Event) -> None:
        self.acked = trio.Event()
        self._draining = draining

    def seek(self, checkpoint: Checkpoint) -> None:
        raise AssertionError("the fake sink keeps no position")

    async def __aiter__(self) -> AsyncIterator[Batch]:
        yield BATCH
        await self._draining.wait()

    def ack_through(self, batch: Batch, index: int | None = None) -> None:
        assert (batch, index) == (BATCH, None)
        self.acked.set()


class FakeShardSink:
    position = refusal = None

    def prepare(self, records) -> Part:
        return Part(records, len(records))

    async def commit(self, parts) -> None:
        await trio.lowlevel.checkpoint()


class FakeParts:
    """Fakes of all components. `events` lists what happened to them, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.finishing = trio.Event()
        self.may_finish = trio.Event()
        self.observer = None
        self.settings: ConsumerSettings | None = None
        self.shard = FakeShard(self.finishing)

    @property
    def parts(self) -> Parts:
        return Parts(
            self.open_kinesis,
            self.open_leases,
            self.open_destination,
            self.open_consumer,
        )

    @asynccontextmanager
    async def part(self, name, value):
        self.events.append(f"{name} opened")
        try:
            yield value
        finally:
            self.events.append(f"{name} closed")

    def open_destination(self, settings, _observer, meter_provider, tracer):
        meter = SinkMeter("efo_log", settings.topic, meter_provider, tracer)
        return nullcontext(Destination(self, reports=_Reports(meter, ignore_events, "isolate")))

    def open_kinesis(self, settings):
        async def nothing(*_: object) -> None: ...

        kinesis = KinesisClient(settings.stream, None, nothing, nothing, "kinesis.test", "https", lambda: 0.0)
        return self.part("kinesis", kinesis)

    def open_leases(self, _settings, _meter_provider):
        return self.part("leases", MemoryLeaseStore())

    def open_consumer(self, _kinesis, *, settings, observer, **arguments):
        self.observer, self.settings, self.arguments = observer, settings, arguments
        observer(ConsumerOpened(READINGS))
        return self.part("consumer", self)

    def open(self, stream, shard_id, checkpoint=None):
        return self.part("sink", FakeShardSink())

    # --- Consumer ---

    async def run(self, reader) -> None:
        self.observer(ConsumerReady("efo", "arn", registered=False))
        self.observer(ShardStarted(SHARD, Checkpoint.TRIM_HORIZON))
        self.observer(EventReceived(SHARD, 2, 500, 1500, None))
        await reader(self.shard)
        await self.may_finish.wait()
        self.events.append("finished")

    def drain(self) -> None:
        self.finishing.set()

    def status(self) -> ConsumerStatus:
        isolated = IsolatedShard("shardId-000000000007", "kms", 31.5, "key", "77")
        shards, counts = tuple(status_of(shard, NOW) for shard in READINGS.shards()), READINGS.counts()
        return ConsumerStatus(
            "w-1", True, self.finishing.is_set(), shards, counts.shards, (isolated,), counts, advice=(ADVICE,)
        )


ADVICE = AdviceGiven("unacked", "two are not acked", "ack them")
LEASES = {
    "graceful_handoff": False,
    "handoff_seconds": 9,
    "max_leases": 5,
    "balance": "throughput",
    "max_leases_per_scan": 4,
    "worker_weights": {"w-": 2.0},
    "zones": ["v", "w"],
    "lease_cleanup": False,
}
"""The other settings of [leases], none with its default."""


def make_settings(**service) -> Settings:
    return Settings(
        kinesis={"stream": "orders"},
        leases={"worker_id": "w-1"},
        service={"port": 0, "log_level": "error", **service},
    )


@pytest.fixture
def sdk():
    with telemetry("w-1", environ={}) as sdk:
        yield sdk


@pytest.fixture
def fakes():
    return FakeParts()


@asynccontextmanager
async def running(fakes, sdk, settings=None):
    """Run the service; yield a client for its endpoints, and wait for the service to end."""
    async with trio.open_nursery() as nursery:

        async def service(task_status) -> None:
            await run(Configuration.of(settings or make_settings()), sdk, parts=fakes.parts, task_status=task_status)
            fakes.events.append("returned")

        url = await nursery.start(service)
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
            await fakes.shard.acked.wait()
            yield client


async def test_a_signal_drains_and_closes_everything_in_order(fakes, sdk):
    async with running(fakes, sdk) as client:
        assert (await client.get("/readyz")).status_code == 200
        signal.raise_signal(signal.SIGTERM)
        await fakes.finishing.wait()
        # The endpoints respond during the drain, and /readyz is not ready.
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).json()["problems"] == ["draining"]
        assert "finished" not in fakes.events
        fakes.may_finish.set()
    assert fakes.events == [
        "kinesis opened",
        "leases opened",
        "consumer opened",
        "sink opened",
        "sink closed",
        "finished",
        "consumer closed",
        "leases closed",
        "kinesis closed",
        "returned",
    ]


async def test_the_deadline_cuts_the_drain_short_and_still_closes_everything(fakes, sdk):
    with pytest.RaisesGroup(DrainDeadlineError):
        async with running(fakes, sdk, make_settings(drain_seconds=0.01)):
            signal.raise_signal(signal.SIGINT)
    assert fakes.events[-3:] == ["consumer closed", "leases closed", "kinesis closed"]
    assert "finished" not in fakes.events


async def test_status_and_metrics_show_the_shards_and_the_records_sent(fakes, sdk):
    async with running(fakes, sdk) as client:
        status = (await client.get("/status")).json()
        families = {f.name for f in text_string_to_metric_families((await client.get("/metrics")).text)}
        sent = sdk.registry.get_sample_value(
            "messaging_client_sent_messages_total",
            {
                "messaging_system": "efo_log",
                "messaging_destination_name": "orders",
                "messaging_operation_name": "send",
            },
        )
        fakes.may_finish.set()
        signal.raise_signal(signal.SIGTERM)
    assert status["shards"] == [
        {
            "shard_id": SHARD,
            "checkpoint": "2",
            "condition": "current",
            "lag_seconds": 1.5,
            "read_lag_seconds": 1.5,
            "millis_behind_latest": 1500,
            "subscription": "live",
            "read_mode": "fanout",
            "paused": False,
            "last_event_age_seconds": 4.25,
            "checkpoint_age_seconds": 2.0,
            "checkpoint_saved_age_seconds": 3.0,
        }
    ]
    assert status["isolated"] == [
        {
            "shard_id": "shardId-000000000007",
            "error_type": "kms",
            "reason": "key",
            "record": "77",
            "seconds_left": 31.5,
        }
    ]
    assert status["last_errors"] == []
    assert (status["worker_id"], status["topic"], status["shard_counts"]) == ("w-1", "orders", {"consuming": 1})
    assert (status["lease_table"], status["lease_counts"], status["workers"]) == ("known", {"held": 1}, 1)
    assert (status["draining"], status["problems"]) == (False, [])
    assert status["advice"] == ["two are not acked: ack them"]
    assert (status["read_mode"], status["fan_out_error"]) == ("fanout", None)
    assert sent == 2
    assert {"efo_consumer_lag_seconds", "efo_subscription_io_bytes", "efo_checkpoint_age_seconds"} <= families
    assert {"efo_shard_status", "efo_subscription_event_age_seconds", "efo_shards"} <= families
    assert {"efo_worker_ready", "efo_leases", "efo_workers", "process_cpu_seconds", "target_info"} <= families


CONSUMER = {
    "shard_sync_seconds": 31,
    "stream_window": 70_000,
    "unsubscribe_idle_seconds": 32,
    "on_service_error": "isolate",
    "shard_cooldown_seconds": 33,
    "aggregates": "keep",
    "consumer_tags": {"team": "orders", "stage": "test"},
}


async def test_every_setting_reaches_the_consumer(fakes, sdk):
    settings = Settings(
        kinesis={"stream": "orders"},
        consumer={"application": "app", "initial_position": "latest", "checkpoint_seconds": 2, **CONSUMER},
        leases={"worker_id": "w-1", "failover_seconds": 7, "lease_scan_seconds": 3, **LEASES},
        service={"port": 0},
    )
    async with running(fakes, sdk, settings):
        fakes.may_finish.set()
        signal.raise_signal(signal.SIGTERM)
    assert fakes.settings == ConsumerSettings(
        consumer_name="app",
        consumer_tags={"team": "orders", "stage": "test"},
        initial_position=settings.consumer.position,
        checkpoint_seconds=2,
        shard_sync_seconds=31,
        stream_window=70_000,
        unsubscribe_idle_seconds=32,
        shard_cooldown_seconds=33,
        aggregates=AggregateMode.KEEP,
        failover_seconds=7,
        lease_scan_seconds=3,
        graceful_handoff=False,
        handoff_seconds=9,
        max_leases=5,
        balance="throughput",
        max_leases_per_scan=4,
        assignment=zone_assignment(["v", "w"], within=weighted_assignment({"w-": 2.0})),
        lease_cleanup=False,
    )
    passed = {name: fakes.arguments[name] for name in ("application", "worker_id", "on_service_error")}
    assert passed == {"application": "app", "worker_id": "w-1", "on_service_error": "isolate"}


async def test_an_error_at_the_start_is_raised_without_an_exception_group(fakes, sdk):
    @asynccontextmanager
    async def refuse(*_, **__):
        raise AccessDeniedError("AccessDeniedException", "kinesis:RegisterStreamConsumer")
        yield

    parts = replace(fakes.parts, open_consumer=refuse)
    with pytest.raises(AccessDeniedError, match="RegisterStreamConsumer"):
        await run(Configuration.of(make_settings()), sdk, parts=parts)
    assert fakes.events[-2:] == ["leases closed", "kinesis closed"]


async def test_a_signal_before_the_consumer_is_open_stops_the_service_cleanly(fakes, sdk):
    @asynccontextmanager
    async def hang(*_, **__):
        signal.raise_signal(signal.SIGTERM)
        await trio.sleep_forever()
        yield

    await run(Configuration.of(make_settings()), sdk, parts=replace(fakes.parts, open_consumer=hang))
    assert fakes.events[-2:] == ["leases closed", "kinesis closed"]


async def test_a_port_in_use_is_unavailable_and_nothing_is_opened(fakes, sdk):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(UnavailableError, match="cannot listen"):
        await run(Configuration.of(make_settings(port=other.getsockname()[1])), sdk, parts=fakes.parts)
    assert fakes.events == []
