from __future__ import annotations

import json

import trio

from efo_service.web.live.feed import Feed
from efo_service.web.live.shard_map import Live
from efo_service.web.live.source import Snapshot
from tests.efo_service.web.live.views import view


class Source:
    """Takes snapshots whose shard has the time as its lag."""

    def __init__(self) -> None:
        self.taken = 0

    async def __call__(self) -> Snapshot:
        self.taken += 1
        return Snapshot((view(Live("a", "current", lag=trio.current_time()), Live("b", "paused")),))


def live(update) -> list[str]:
    return [shard["id"] for shard in json.loads(update.json)["streams"][0]["live"]]


async def test_all_viewers_share_one_snapshot_a_second(autojump_clock):
    source = Source()
    feed = Feed(source)

    async def view_some() -> None:
        seen = 0
        for _ in range(5):
            seen = (await feed.after(seen)).version

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(view_some)
    assert (source.taken, trio.current_time()) == (5, 4.0)


async def test_nothing_is_taken_while_nobody_looks(autojump_clock):
    source = Source()
    feed = Feed(source)
    await feed.after(0)
    await trio.sleep(3600)
    assert source.taken == 1
    assert not (await feed.after(1)).is_whole


async def test_a_viewer_gets_a_whole_snapshot_and_then_what_changed(autojump_clock):
    feed = Feed(Source())
    first = await feed.after(0)
    second = await feed.after(first.version)
    assert (first.is_whole, live(first)) == (True, ["a", "b"])
    assert (second.is_whole, live(second)) == (False, ["a"])


async def test_a_slow_viewer_skips_snapshots_and_gets_a_whole_one(autojump_clock):
    feed = Feed(Source())
    slow = await feed.after(0)
    fast = slow.version
    for _ in range(3):
        fast = (await feed.after(fast)).version
    found = await feed.after(slow.version)
    assert (found.version, found.is_whole) == (fast, True)


async def test_a_viewer_that_leaves_while_it_waits_stops_nobody(autojump_clock):
    feed = Feed(Source())
    await feed.after(0)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            nursery.start_soon(feed.after, 1)
            await feed.after(1)
    assert (await feed.after(1)).version == 2


async def test_viewers_beyond_the_limit_are_reported(autojump_clock):
    feed = Feed(Source(), max_viewers=1)
    with feed.viewer() as first, feed.viewer() as second:
        assert (first, second, feed.viewers) == (True, False, 1)
    with feed.viewer() as again:
        assert again
