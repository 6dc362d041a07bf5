"""How the checks detect a shard's end, and a server that reports none: in virtual time, without a server."""

from __future__ import annotations

import pytest
import trio

from efo.errors import ResourceInUseError
from efo.events import EventReceived, ShardFinished, ShardGone, SubscribeAttempted, SubscriptionEnded
from efo.model import Checkpoint
from proofs.interop.servers import checks, resharding
from proofs.interop.servers.comparison import Item, data_of
from proofs.interop.servers.results import TIMED_OUT, CheckContext


class Stream:
    """A stream whose records are all put into one shard."""

    def __init__(self, target):
        self.items = []
        self._target = target

    async def put(self, count):
        numbers = range(len(self.items), len(self.items) + count)
        new = [Item(self._target, str(number), 0, f"key-{number}", data_of(number, 10)) for number in numbers]
        self.items += new
        return new

    async def split(self):
        return "parent", ["left", "right"]

    async def merge(self):
        return ["left", "right"], ["merged"]


@pytest.fixture
def send(nursery):
    """Return a function that sends `main` these events, one per second, and then all records that are put."""

    def send(context, *events, reads=True):
        async def send_all():
            for event in events:
                await trio.sleep(1)
                context.main.observe(event)
            while reads:
                context.main.items[:] = context.expected()
                context.main.observe(event)
                await trio.sleep(1)

        nursery.start_soon(send_all)

    return send


def context(target="left"):
    return CheckContext(None, Stream(target))


def empty(shard):
    return EventReceived(shard, 0, 100, 0, 1.0)


def ended(shard, reason="expired", detail="", age=3.0):
    return SubscriptionEnded(shard, age, reason, detail)


async def test_a_reported_end_is_ok(send, autojump_clock):
    split = context()
    send(split, empty("parent"), ShardFinished("parent", ("left", "right")))
    assert str(await resharding.split(split)) == "ok"
    assert split.unread == set()
    assert split.comparison().passed
    assert split.comparison().records == len(split.stream.items) > 0


async def test_a_shard_that_is_gone_is_ok(send, autojump_clock):
    split = context()
    send(split, ShardGone("parent", Checkpoint.TRIM_HORIZON), ShardFinished("parent", ()))
    result = await resharding.split(split)
    assert result.outcome == "ok"
    assert "ListShards" in result.detail


@pytest.mark.parametrize(
    "signs", [[empty("parent")] * 3, [ended("parent")] * 2], ids=["empty events", "ended subscriptions"]
)
async def test_a_server_that_reports_no_end_is_lacking(send, signs, autojump_clock):
    split = context()
    send(split, *signs)
    assert (await resharding.split(split)).outcome == "lacking"
    assert split.unread == {"left", "right"}
    assert split.comparison().passed
    # A record of a child counts as unexpected.
    split.main.items.append(split.stream.items[0])
    assert split.comparison().duplicated == 1
    # Their merge has no end to wait for either.
    assert (await resharding.merge(split)).outcome == "lacking"
    assert split.unread == {"left", "right", "merged"}


async def test_a_merge_waits_for_both_parents(send, autojump_clock):
    merge = context("merged")
    send(merge, ShardFinished("left", ("merged",)), empty("right"), ShardFinished("right", ("merged",)))
    assert str(await resharding.merge(merge)) == "ok"
    assert trio.current_time() >= 3


@pytest.mark.parametrize(
    "events",
    [[empty("parent")] * 2, [ended("parent")], [empty("another")] * 9, [ShardFinished("another", ())]],
    ids=["two empty events", "one ended subscription", "events of another shard", "end of another shard"],
)
async def test_too_few_signs_time_out(send, events, autojump_clock):
    split = context()
    send(split, *events, reads=False)
    assert await resharding.split(split) == TIMED_OUT
    assert split.unread == set()


async def test_missing_records_of_the_children_fail(send, autojump_clock):
    split = context()
    send(split, ShardFinished("parent", ()), reads=False)
    assert (await resharding.split(split)).outcome == "failed"


@pytest.mark.parametrize(
    ("event", "decided", "renewals"),
    [
        pytest.param(ended("s", "renewed"), True, 1, id="renewed"),
        pytest.param(
            ended("s", "service", "ResourceInUseException: Another active subscription exists"),
            True,
            0,
            id="rejected in the stream",
        ),
        pytest.param(SubscribeAttempted("s", 0.0, 0.1, ResourceInUseError.error_type), True, 0, id="rejected"),
        pytest.param(SubscribeAttempted("s", 0.0, 0.1, None), False, 0, id="accepted"),
        pytest.param(ended("s", "service", "InternalFailure"), False, 0, id="another error"),
        pytest.param(ended("s", "expired", age=3.0), False, 0, id="expired early"),
        pytest.param(ended("s", "expired", age=300.0), False, 1, id="expired"),
        pytest.param(ended("another", "renewed"), False, 1, id="another shard"),
    ],
)
def test_a_renewal_is_decided_by_success_or_rejection(event, decided, renewals):
    main = context().main
    main.observe(event)
    assert checks._renewals_decided(main, ["s"]) is decided
    assert main.renewals == renewals
