"""Renewal without gaps (rule R7), over HTTP/2 to the fake in virtual time. At scale: `make bench-core`."""

import pytest
import trio

from efo.settings import STREAM_WINDOW
from efo.testing.faults.kinds import GoAway
from efo.testing.faults.script import FaultScript, When
from proofs.benchmarks.subscribed import STREAM, open_subscribed

FIRST = "shardId-000000000000"


async def test_subscriptions_are_renewed_without_gaps_and_without_repetition(autojump_clock):
    async with open_subscribed(40, 0.8, max_concurrent_streams=10) as subscribed:
        subscribed.subscribe_all()
        await subscribed.put_for(1200, every=30.0)
        await trio.sleep(60)
        assert subscribed.unread() == (0, 0)
        assert subscribed.watch.longest_gap == 0.0
        assert set(subscribed.watch.live.values()) == {1}
        assert set(subscribed.watch.ended) == {"renewed"}
        # Only the wait for the first subscription delays records.
        assert subscribed.reading.delays_after(60) == 0.0
        assert subscribed.watch.connections in (4, 5)


async def test_subscriptions_move_to_a_new_connection_after_goaway(autojump_clock):
    script = FaultScript([(GoAway(), When(shard=FIRST, at=60.0))])
    async with open_subscribed(10, 4.0, faults=script) as subscribed:
        subscribed.subscribe_all()
        await subscribed.put_for(59, every=1.0)
        assert subscribed.watch.connections == 1
        await subscribed.put_for(10, every=0.1)
        assert [fired.fault for fired in script.fired] == [GoAway()]
        # Within seconds, all subscriptions use another connection, without a gap.
        assert subscribed.watch.connections == 2
        assert subscribed.watch.closed == ["goaway"]
        assert subscribed.watch.accepted == dict.fromkeys(subscribed.fake.open_shards(STREAM), 2)
        assert subscribed.watch.longest_gap == 0.0
        assert set(subscribed.watch.ended) == {"renewed"}
        await trio.sleep(10)
        assert subscribed.unread() == (0, 0)


@pytest.mark.scenario("G61")
async def test_a_slow_reader_buffers_one_window_and_does_not_slow_down_other_shards(autojump_clock):
    """Its shard gets 2 MiB/s, and it takes one record per second (rules R8, R9)."""
    slow, other = "shardId-000000000000", "shardId-000000000001"
    load = {"record_bytes": 10_000, "records_per_event": 20, "rate": 2 * 2**20 / 10_000}
    async with open_subscribed(2, 20.0, load=load) as subscribed:
        subscribed.subscribe(0, slow, pause=1.0)
        subscribed.subscribe(1, other)
        peak = 0
        for _ in range(500):
            await trio.sleep(0.1)
            peak = max(peak, subscribed.caller.event_streams[slow].held)
        largest_event = 20 * 10_000 * 3 // 2  # base64 and JSON
        assert STREAM_WINDOW // 2 < peak <= STREAM_WINDOW + largest_event
        assert len(subscribed.reading.numbers[slow]) == 50
        assert len(subscribed.reading.numbers[other]) * 10_000 / 50 > 1.95 * 2**20
        assert not subscribed.watch.ended  # not even for silence, since the reader was busy
        assert set(subscribed.watch.accepted.values()) == {1}
