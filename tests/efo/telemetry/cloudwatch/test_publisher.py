"""When metrics are sent, how many at a time, and what happens while CloudWatch fails; in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

import efo
from efo import events
from efo.telemetry.cloudwatch import publisher as module
from efo.telemetry.cloudwatch.kcl_metrics import Datum, KclMetrics
from efo.telemetry.cloudwatch.publisher import CloudWatchPublisher, next_request
from efo.telemetry.outages import OutageBegan, OutageEnded, OutageGivenUp, Refused


class RefusedError(Exception):
    def __init__(self, *, is_final: bool = False) -> None:
        super().__init__("no route")
        self.error_type, self.is_final = "transport", is_final


class FakeCloudWatch:
    """`error`: raised by each call. `hangs`: calls never return. `requests`: time and size of those that were taken."""

    def __init__(self) -> None:
        self.start = trio.current_time()
        self.error: Exception | None = None
        self.hangs = False
        self.calls = 0
        self.requests: list[tuple[float, int]] = []

    async def put(self, metrics) -> None:
        self.calls += 1
        await trio.sleep(1000 if self.hangs else 0)
        if self.error is not None:
            raise self.error
        self.requests.append((trio.current_time() - self.start, len(metrics)))


@asynccontextmanager
async def publishing():
    """Publish to a fake; a shard has new metrics whenever time passes."""
    fake, outages = FakeCloudWatch(), []
    publisher = CloudWatchPublisher(
        fake, KclMetrics("summary"), refused=RefusedError, on_outage=outages.append, clock=trio.current_time
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publisher.run)
        yield fake, publisher, outages
        nursery.cancel_scope.cancel()


def feed(publisher, shards: int = 1) -> None:
    for number in range(shards):
        publisher(events.EventReceived(f"s-{number}", 1, 900, 7, None))


async def test_metrics_are_sent_every_ten_seconds_and_the_rest_at_the_end(autojump_clock):
    async with publishing() as (fake, publisher, _):
        feed(publisher)
        await trio.sleep(15)
        feed(publisher, shards=2)
        await trio.sleep(7)
        feed(publisher, shards=3)
    assert fake.requests == [(10, 1), (20, 2), (22, 3)]


async def test_nothing_is_sent_when_there_is_nothing_to_tell(autojump_clock):
    async with publishing() as (fake, *_):
        await trio.sleep(100)
    assert fake.calls == 0


async def test_a_request_has_at_most_a_thousand_metrics(autojump_clock):
    async with publishing() as (fake, publisher, _):
        feed(publisher, shards=2500)
        await trio.sleep(11)
        assert [size for _, size in fake.requests] == [1000, 1000, 500]


async def test_an_outage_is_reported_twice_and_what_waited_is_sent_with_its_times(autojump_clock):
    async with publishing() as (fake, publisher, outages):
        fake.error = RefusedError()
        for _ in range(3):
            feed(publisher)
            await trio.sleep(10.25)
        assert outages == [OutageBegan("cloudwatch", "transport", "no route")]
        fake.error = None
        await trio.sleep(10)
        assert fake.requests == [(40, 3)]
        assert outages[1:] == [OutageEnded("cloudwatch", "transport", 30.0, 3)]


async def test_the_buffer_is_bounded_and_what_is_dropped_is_counted(autojump_clock, monkeypatch):
    monkeypatch.setattr(module, "MAX_BUFFERED", 25)
    async with publishing() as (fake, publisher, outages):
        fake.error = RefusedError()
        for _ in range(4):
            feed(publisher, shards=10)
            await trio.sleep(10.001)
        assert (len(publisher._buffer), publisher.dropped) == (25, 15)
        fake.error = None
        await trio.sleep(10)
        assert fake.requests[0][1] == 25
        assert outages[1].dropped == 15


async def test_metrics_that_are_refused_do_not_block_those_behind_them(autojump_clock):
    async with publishing() as (fake, publisher, outages):
        fake.error = RefusedError(is_final=True)
        feed(publisher)
        await trio.sleep(11)
        fake.error = None
        feed(publisher)
        await trio.sleep(10)
        assert (fake.requests, publisher.dropped) == ([(20, 1)], 1)
        assert outages == [Refused("cloudwatch", "transport", "no route", 1)]


async def test_a_call_that_hangs_delays_the_end_by_two_seconds_and_no_event(autojump_clock):
    async with publishing() as (fake, publisher, outages):
        fake.hangs = True
        feed(publisher)
        await trio.sleep(20)
        feed(publisher)
        ended_at = trio.current_time()
    assert trio.current_time() - ended_at == module.FLUSH_TIMEOUT
    assert outages == [OutageGivenUp("cloudwatch", "no_response", 0.0, 1, dropped=2)]


async def test_what_an_outage_leaves_at_the_end_is_reported(autojump_clock):
    async with publishing() as (fake, publisher, outages):
        fake.error = RefusedError()
        feed(publisher, shards=3)
        await trio.sleep(15)
        feed(publisher, shards=4)
    assert outages[1:] == [OutageGivenUp("cloudwatch", "transport", 5.0, 2, dropped=7)]
    assert publisher.dropped == 7


def test_a_request_is_smaller_than_a_megabyte():
    long = Datum("Time", "Milliseconds", (("WorkerIdentifier", "w" * 1000),), 0.0, 1, 1.0, 1.0, 1.0)
    assert len(next_request([long] * 1000)) * 1000 < 1_000_000
    assert len(next_request([long] * 2)) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"application": ""}, "application is empty"),
        ({"level": "all"}, "level='all': expected 'summary' or 'detailed'"),
        ({"region": 5}, "region=5"),
    ],
)
async def test_a_mistake_is_refused_when_it_is_opened(options, message):
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        async with efo.telemetry.open_cloudwatch(**{"application": "app", **options}):
            pass
