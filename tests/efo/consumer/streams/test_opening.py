"""What the consumers of several streams share, and what each of them is opened with."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import efo
from efo.aws.role import AssumedRole
from efo.consumer.streams import opening
from efo.consumer.streams.config import StreamConfig
from efo.consumer.streams.opening import OPENINGS, logging_observer, open_streams
from efo.errors import ConfigurationError
from efo.kinesis.client import KinesisClient
from efo.leases.stores.memory import MemoryLeaseStore
from efo.settings import ConsumerSettings

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
ROLE = AssumedRole("arn:aws:iam::123456789012:role/reader")


async def read(_shard: object) -> None:
    """Read nothing."""


class Opened:
    """Stands for what opens clients and consumers. `clients`, `consumers`: what each was opened with, by stream.

    `seconds`: how long an opening takes. `most`: how many were opening at the same time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clients: dict[str, tuple[Any, ...]] = {}
        self.consumers: dict[str, dict[str, Any]] = {}
        self.shared: dict[str, Any] = {}
        self.seconds = 0.0
        self.opening = self.most = 0
        self.stores: dict[str, MemoryLeaseStore] = {}
        monkeypatch.setattr(opening, "open_client", self.open_client)
        monkeypatch.setattr(opening, "open_sharing", self.open_sharing)

    @asynccontextmanager
    async def open_client(self, stream, where, role):
        name = stream.stream if isinstance(stream, KinesisClient) else stream.rpartition("/")[2]
        self.clients[name] = (stream, dict(where), role)
        yield SimpleNamespace(stream=name)

    @asynccontextmanager
    async def open_sharing(self, shared, kinesis, **options):
        self.opening += 1
        self.most = max(self.most, self.opening)
        try:
            await trio.sleep(self.seconds)
        finally:
            self.opening -= 1
        self.consumers[kinesis.stream], self.shared[kinesis.stream] = options, shared
        ended = trio.Event()

        async def run(_reader: object) -> None:
            await ended.wait()

        yield SimpleNamespace(run=run, drain=ended.set, is_complete=False, caught_up=lambda: True)

    def leases(self, stream: str) -> MemoryLeaseStore:
        return self.stores.setdefault(stream, MemoryLeaseStore())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


async def run(opened: Opened, streams, seconds: float = 1.0, **options: Any):
    """Read streams for some seconds; return the consumer."""
    options = {"application": "app", "leases": opened.leases, "worker_id": "ann", **options}
    async with open_streams(streams, **options) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, read)
        await trio.sleep(seconds)
        consumer.drain()
    return consumer


async def test_each_stream_is_opened_with_what_is_given_for_all(autojump_clock, opened):
    observers: dict[str, list[object]] = {}

    def observe(stream: str):
        observers[stream] = []
        return observers[stream].append

    settings = ConsumerSettings(max_leases=7)
    tracing = object()
    consumer = await run(
        opened,
        ["a", StreamConfig(stream="b", initial_position="LATEST", settings=ConsumerSettings(max_leases=3))],
        settings=settings,
        on_service_error="isolate",
        observer=observe,
        tracing=tracing,
        until="now",
    )
    assert consumer.is_closed
    with pytest.raises(ConfigurationError, match="closed"):
        await consumer.run(read)
    a, b = opened.consumers["a"], opened.consumers["b"]
    assert (a["application"], a["worker_id"], a["on_service_error"], a["until"]) == ("app", "ann", "isolate", "now")
    assert a["tracing"] is tracing
    assert (a["settings"], b["settings"].max_leases) == (settings, 7)
    assert (a["position_is_chosen"], b["position_is_chosen"]) == (False, True)
    assert [each["leases"] for each in (a, b)] == [opened.stores["a"], opened.stores["b"]]
    a["observer"]("an event")
    assert observers == {"a": ["an event"], "b": []}
    assert opened.shared["a"].limiter is not opened.shared["b"].limiter
    assert opened.shared["a"].joint._joint is opened.shared["b"].joint._joint


async def test_a_position_for_all_streams_is_chosen_for_each(autojump_clock, opened):
    await run(opened, ["a"], initial_position="LATEST")
    assert opened.consumers["a"]["position_is_chosen"]


@pytest.mark.parametrize(
    ("config", "where"),
    [
        (StreamConfig(stream="orders"), {"region": "us-east-1", "profile": "dev"}),
        (StreamConfig(stream="orders", region="eu-north-1", role=ROLE), {"region": "eu-north-1", "profile": "dev"}),
        (StreamConfig(stream=ARN), {"profile": "dev"}),
        (StreamConfig(stream=ARN, region="eu-north-1"), {"profile": "dev"}),
        (StreamConfig(stream=KinesisClient("orders", None, None, None, "host", "https", lambda: 0.0)), {}),
    ],
)
async def test_a_stream_is_where_all_are_unless_it_has_a_region_of_its_own(autojump_clock, opened, config, where):
    await run(opened, [config], region="us-east-1", profile="dev")
    assert opened.clients == {"orders": (config.stream, where, config.role)}


async def test_some_streams_of_each_account_are_opened_at_the_same_time(autojump_clock, opened):
    opened.seconds = 10.0
    names = [f"s{n}" for n in range(OPENINGS + 1)]
    await run(opened, names, 15.0)
    assert (opened.most, len(opened.consumers)) == (OPENINGS, OPENINGS)
    assert OPENINGS == 5  # AWS's limit
    opened.most = 0
    theirs = [StreamConfig(stream=f"t{n}", role=ROLE) for n in range(OPENINGS)]
    await run(opened, [*names[:OPENINGS], *theirs], 15.0)
    assert opened.most == 2 * OPENINGS


async def test_a_stream_that_is_left_counts_no_more_in_the_balance(autojump_clock, opened):
    async with (
        open_streams(["a"], application="app", leases=opened.leases, worker_id="ann") as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, read)
        await trio.sleep(1)
        joint = opened.shared["a"].joint._joint
        joint._tables["a"] = "what its leases are"
        consumer.remove("a")
        await trio.sleep(1)
        assert joint._tables == {}
        consumer.drain()


async def test_the_region_of_the_streams_is_that_of_their_table(autojump_clock, opened, monkeypatch):
    asked = []

    @asynccontextmanager
    async def stores(*arguments):
        asked.append(arguments)

        async def leases_of(config, _kinesis):
            return opened.leases(config.name)

        yield leases_of

    monkeypatch.setattr(opening, "open_lease_stores", stores)
    await run(opened, [ARN], leases="dynamodb:leases", proxy_url="http://proxy:3128")
    await run(opened, [ARN], leases="dynamodb:leases", region="us-east-1")
    assert asked == [
        ("dynamodb:leases", "app", "eu-west-1", "http://proxy:3128"),
        ("dynamodb:leases", "app", "us-east-1", None),
    ]


async def test_without_a_worker_id_one_is_chosen_for_all_streams(autojump_clock, opened):
    await run(opened, ["a", "b"], worker_id=None)
    assert opened.consumers["a"]["worker_id"] == opened.consumers["b"]["worker_id"] is not None


async def test_by_default_a_tracker_is_asked_each_minute(autojump_clock, opened):
    asked = []

    async def tracker() -> list[str]:
        asked.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        return ["a"]

    await run(opened, tracker, 60.5)
    assert asked == [0.0, 60.0]


async def test_an_observer_that_is_none_is_refused_when_its_stream_is_opened(autojump_clock, opened):
    with pytest.raises(ConfigurationError, match="observer="):
        await run(opened, ["a"], observer=lambda _stream: 7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"application": ""}, "application is empty"),
        ({"region": 7}, "region=7"),
        ({"refresh_interval": -1}, "refresh_interval=-1"),
        ({"observer": 7}, "observer=7: expected a function that returns the observer of a stream"),
        ({"observer": lambda: None}, "observer"),
        ({"on_service_error": "skip"}, "on_service_error='skip': expected 'stop' or 'isolate'"),
    ],
)
async def test_a_wrong_argument_is_refused_before_anything_is_opened(opened, options, message):
    with pytest.raises(ConfigurationError, match=message):
        await run(opened, ["a"], **options)
    assert opened.clients == {}


def test_the_logger_of_a_stream_has_its_name():
    assert logging_observer("orders")._logger.name == "efo.orders"


async def test_it_starts_with_its_consumer_and_processes_one_key_at_a_time_by_default(autojump_clock, monkeypatch):
    made, consumer = [], SimpleNamespace()

    @asynccontextmanager
    async def streams(_streams, **_options):
        async def run(reader: Any) -> None:
            made.append(reader._key_concurrency)
            await trio.lowlevel.checkpoint()

        consumer.run = run
        yield consumer

    async def handle(_batch: efo.Batch) -> None:
        """Process nothing."""

    monkeypatch.setattr(opening, "open_streams", streams)
    async with trio.open_nursery() as nursery:
        started = await nursery.start(partial(opening.consume_streams, [], handle, application="app"))
    assert (started, made) == (consumer, [1])
