"""What the driver takes for a shard's end, and for a server that tells none: in virtual time, without a server."""

from __future__ import annotations

import pytest
import trio

from efo.errors import ResourceInUseError
from efo.events import EventReceived, ShardFinished, ShardGone, SubscribeAttempted, SubscriptionEnded
from efo.model import TRIM_HORIZON
from proofs.interop.servers import exercises, resharding
from proofs.interop.servers.findings import TIMED_OUT, Subject
from proofs.interop.servers.judgement import Item, data_of


class Stream:
    """A stream whose records are put into the shard that is told."""

    def __init__(self, into):
        self.items = []
        self._into = into

    async def put(self, count):
        numbers = range(len(self.items), len(self.items) + count)
        new = [Item(self._into, str(number), 0, f"key-{number}", data_of(number, 10)) for number in numbers]
        self.items += new
        return new

    async def split(self):
        return "parent", ["left", "right"]

    async def merge(self):
        return ["left", "right"], ["merged"]


@pytest.fixture
def play(nursery):
    """Return a function that lets `main` be told these events, a second apart, and then read all that is put."""

    def play(subject, *events, reads=True):
        async def tell():
            for event in events:
                await trio.sleep(1)
                subject.main.observe(event)
            while reads:
                subject.main.items[:] = subject.expected()
                subject.main.observe(event)
                await trio.sleep(1)

        nursery.start_soon(tell)

    return play


def subject(into="left"):
    return Subject(None, Stream(into))


def empty(shard):
    return EventReceived(shard, 0, 100, 0, 1.0)


def ended(shard, reason="expired", detail="", age=3.0):
    return SubscriptionEnded(shard, age, reason, detail)


async def test_an_end_that_is_told(play, autojump_clock):
    split = subject()
    play(split, empty("parent"), ShardFinished("parent", ("left", "right")))
    assert str(await resharding.split(split)) == "ok"
    assert split.unread == set()
    assert split.verdict().is_right
    assert split.verdict().records == len(split.stream.items) > 0


async def test_a_shard_that_is_gone_with_its_end(play, autojump_clock):
    split = subject()
    play(split, ShardGone("parent", TRIM_HORIZON), ShardFinished("parent", ()))
    finding = await resharding.split(split)
    assert finding.outcome == "ok"
    assert "ListShards" in finding.detail


@pytest.mark.parametrize("sign", [[empty("parent")] * 3, [ended("parent")] * 2])
async def test_a_server_that_tells_no_end(play, sign, autojump_clock):
    split = subject()
    play(split, *sign)
    assert (await resharding.split(split)).outcome == "lacking"
    assert split.unread == {"left", "right"}
    assert split.verdict().is_right
    # Had efo begun the children all the same, that would be seen.
    split.main.items.append(split.stream.items[0])
    assert split.verdict().duplicated == 1
    # And nothing more is to be waited for where those are merged.
    assert (await resharding.merge(split)).outcome == "lacking"
    assert split.unread == {"left", "right", "merged"}


async def test_a_merge_waits_for_both_parents(play, autojump_clock):
    merge = subject("merged")
    play(merge, ShardFinished("left", ("merged",)), empty("right"), ShardFinished("right", ("merged",)))
    assert str(await resharding.merge(merge)) == "ok"
    assert trio.current_time() >= 3


@pytest.mark.parametrize(
    "events",
    [[empty("parent")] * 2, [ended("parent")], [empty("another")] * 9, [ShardFinished("another", ())]],
)
async def test_too_little_is_no_sign(play, events, autojump_clock):
    split = subject()
    play(split, *events, reads=False)
    assert await resharding.split(split) == TIMED_OUT
    assert split.unread == set()


async def test_children_whose_records_are_missing(play, autojump_clock):
    split = subject()
    play(split, ShardFinished("parent", ()), reads=False)
    assert (await resharding.split(split)).outcome == "failed"


@pytest.mark.parametrize(
    ("event", "decided", "renewals"),
    [
        (ended("s", "renewed"), True, 1),
        (ended("s", "service", "ResourceInUseException: Another active subscription exists"), True, 0),
        (SubscribeAttempted("s", 0.0, 0.1, ResourceInUseError.error_type), True, 0),
        (SubscribeAttempted("s", 0.0, 0.1, None), False, 0),
        (ended("s", "service", "InternalFailure"), False, 0),
        (ended("s", "expired", age=3.0), False, 0),
        (ended("s", "expired", age=300.0), False, 1),
        (ended("another", "renewed"), False, 1),
    ],
)
def test_what_decides_a_renewal(event, decided, renewals):
    main = subject().main
    main.observe(event)
    assert exercises._is_decided(main, ["s"]) is decided
    assert main.renewals == renewals
