"""Shards stay subscribed without a gap (R7), over HTTP/2 to the fake, in virtual time. At scale: `make bench-core`."""

import pytest
import trio

from efo.settings import STREAM_WINDOW
from efo.testing.faults.kinds import GoAway
from efo.testing.faults.script import FaultScript, When
from proofs.benchmarks.subscribed import STREAM, open_subscribed

FIRST = "shardId-000000000000"


async def test_without_a_gap_and_without_a_repetition(autojump_clock):
    async with open_subscribed(40, 0.8, max_concurrent_streams=10) as many:
        many.subscribe_all()
        await many.put_for(1200, every=30.0)
        await trio.sleep(60)
        assert many.unread() == (0, 0)
        assert many.watch.longest_gap == 0.0
        assert set(many.watch.live.values()) == {1}
        assert set(many.watch.ended) == {"renewed"}
        # Nothing is late but by the wait for a first subscription.
        assert many.reading.delays_after(60) == 0.0
        assert many.watch.connections in (4, 5)


async def test_a_connection_that_goes_away_is_left_before_it_ends(autojump_clock):
    script = FaultScript([(GoAway(), When(shard=FIRST, at=60.0))])
    async with open_subscribed(10, 4.0, faults=script) as many:
        many.subscribe_all()
        await many.put_for(59, every=1.0)
        assert many.watch.connections == 1
        await many.put_for(10, every=0.1)
        assert [fired.fault for fired in script.fired] == [GoAway()]
        # All are on another connection within seconds, and nobody who reads has noticed.
        assert many.watch.connections == 2
        assert many.watch.closed == ["goaway"]
        assert many.watch.accepted == dict.fromkeys(many.fake.open_shards(STREAM), 2)
        assert many.watch.longest_gap == 0.0
        assert set(many.watch.ended) == {"renewed"}
        await trio.sleep(10)
        assert many.unread() == (0, 0)


@pytest.mark.scenario("G61")
async def test_a_slow_reader_holds_a_window_and_no_more_and_hurts_nobody(autojump_clock):
    """Its shard runs at 2 MiB/s while it takes one record per second (R8, R9)."""
    slow, neighbour = "shardId-000000000000", "shardId-000000000001"
    load = {"record_bytes": 10_000, "records_per_event": 20, "rate": 2 * 2**20 / 10_000}
    async with open_subscribed(2, 20.0, load=load) as both:
        both.subscribe(0, slow, pause=1.0)
        both.subscribe(1, neighbour)
        peak = 0
        for _ in range(500):
            await trio.sleep(0.1)
            peak = max(peak, both.caller.answers[slow].held)
        largest_event = 20 * 10_000 * 3 // 2  # base64 and JSON
        assert STREAM_WINDOW // 2 < peak <= STREAM_WINDOW + largest_event
        assert len(both.reading.numbers[slow]) == 50
        assert len(both.reading.numbers[neighbour]) * 10_000 / 50 > 1.95 * 2**20
        assert not both.watch.ended  # neither silence nor anything else: its reader was busy
        assert set(both.watch.accepted.values()) == {1}
