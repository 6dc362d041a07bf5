"""When a consumer ends, and what is reported of the error that ends it, or isolates a shard."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import trio

from efo.consumer.ending import Completion, detail_of, drain_after, failure_of
from efo.errors import HandlerError, IsolateShardError, StreamResetError
from efo.events import ConsumerFailed
from efo.model import Checkpoint, Lease


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (LookupError("a key"), "LookupError"),
        (caused(LookupError("a key"), ValueError("bad")), "LookupError"),
        (caused(IsolateShardError("s-0"), LookupError("a key")), "LookupError"),
        (IsolateShardError("s-0"), IsolateShardError("s-0").error_type),
        (caused(StreamResetError("reset", code=8), OSError("cut")), StreamResetError("reset", code=8).error_type),
    ],
)
def test_the_type_is_that_of_the_error_or_of_what_isolates_the_shard(error, reported):
    assert failure_of(error).error_type == reported


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (LookupError("a customer"), ""),  # it may contain data
        (IsolateShardError("the table is locked"), "the table is locked"),
        (HandlerError("no parameter"), "no parameter"),
        (caused(HandlerError("a customer"), LookupError("a customer")), "the application's code does not fit efo: "),
        (caused(IsolateShardError("the table is locked"), LookupError("a customer")), "the table is locked"),
    ],
)
def test_the_text_of_an_applications_exception_is_not_reported(error, detail):
    expected = f"{detail}LookupError" if detail.endswith(": ") else detail
    assert detail_of(error) == expected
    assert failure_of(error) == ConsumerFailed(failure_of(error).error_type, expected, ())


def test_a_failure_is_reported_with_its_place():
    with pytest.raises(LookupError) as raised:
        caused({}["a customer"], None)
    assert failure_of(raised.value).places[-1].endswith("test_a_failure_is_reported_with_its_place")


async def test_a_consumer_with_a_time_limit_is_drained_when_it_is_over(autojump_clock):
    drained = []
    await drain_after(7.0, SimpleNamespace(drain=lambda: drained.append(trio.current_time())))
    assert drained == [7.0]


@dataclass
class Shard:
    """What a shard stream says of itself."""

    shard_id: str = "a"
    is_finished: bool = False
    is_complete: bool = False
    is_at_tip: bool = False
    has_unacked: bool = False


class World:
    """A worker that may read all shards but b and c, and that holds no lease of the worker `other`.

    `listed_closed`: shards that had ended when they were listed. By now one lease scan began and ended, and none
    before the shards were listed.
    """

    def __init__(self, *keys: str, until="now") -> None:
        self.leases = {key: Lease(key, Checkpoint.TRIM_HORIZON) for key in keys}
        self.listed_closed: set[str] = set()
        self.coordinator = SimpleNamespace(
            leases=self.leases, scanned=1, scans_begun=1, is_of_another=lambda lease: lease.owner == "other"
        )
        self.shard_sync = SimpleNamespace(synced_after=0, is_closed=self.listed_closed.__contains__)
        self.running: dict[str, Shard] = {}
        self.completion = Completion(
            until,
            self.coordinator,
            self.shard_sync,
            running=self.running,
            selects=lambda lease: lease.key != "b",
            may_start=lambda lease: lease.key != "c",
        )

    def finish(self, key: str, *children: str) -> None:
        self.leases[key] = Lease(key, Checkpoint.SHARD_END, children=children)

    @property
    def state(self) -> tuple[bool, bool]:
        return self.completion.is_complete, self.completion.is_caught_up


NEITHER, COMPLETE, BOTH = (False, False), (True, False), (True, True)


@pytest.mark.parametrize(
    ("shard", "state"),
    [
        (Shard(), NEITHER),
        (Shard(is_at_tip=True), NEITHER),
        (Shard(is_complete=True, has_unacked=True), COMPLETE),
        (Shard(is_complete=True), BOTH),
    ],
)
def test_a_shard_is_done_when_all_of_it_is_delivered_and_acked_up_to_the_end(shard, state):
    world = World("a")
    world.running["a"] = shard
    assert world.state == state


@pytest.mark.parametrize(
    ("shard", "is_closed", "is_caught_up"),
    [
        (Shard(), False, False),
        (Shard(is_complete=True), False, False),
        (Shard(is_at_tip=True, has_unacked=True), False, False),
        (Shard(is_at_tip=True), False, True),
        (Shard(is_at_tip=True), True, False),  # its end is still to come
    ],
)
def test_a_consumer_without_an_end_is_caught_up_at_the_tip_and_never_complete(shard, is_closed, is_caught_up):
    world = World("a", until=None)
    world.running["a"] = shard
    if is_closed:
        world.listed_closed.add("a")
    assert world.state == (False, is_caught_up)
    assert not world.completion.ends
    assert world.completion.limit("a") is None


@pytest.mark.parametrize(
    ("key", "owner", "state"),
    [
        ("a", None, NEITHER),  # as one that a crashed worker held
        ("a", "other", BOTH),
        ("b", None, BOTH),  # not selected
        ("c", None, BOTH),  # its parents are unfinished
    ],
)
def test_a_shard_that_nobody_reads_is_waited_for_unless_it_is_not_to_be_read(key, owner, state):
    world = World()
    world.leases[key] = Lease(key, Checkpoint.TRIM_HORIZON, owner=owner)
    assert world.state == state


def test_every_shard_counts():
    world = World("a", "d")
    world.running |= {"a": Shard("a", is_complete=True), "d": Shard("d")}
    assert world.state == NEITHER
    world.running["d"].is_complete = True
    assert world.state == BOTH


@pytest.mark.parametrize(("has_unacked", "state"), [(False, BOTH), (True, COMPLETE)])
def test_a_shard_that_was_read_up_to_the_end_is_left(has_unacked, state):
    world = World("a")
    world.completion.leave(Shard(has_unacked=has_unacked))
    assert not world.completion.is_left("a")
    assert world.state == NEITHER
    world.completion.leave(Shard(is_complete=True, has_unacked=has_unacked))
    assert world.completion.is_left("a")
    assert world.state == state


def test_only_a_lease_scan_that_began_after_the_shards_were_listed_shows_all_leases():
    world = World()
    world.shard_sync.synced_after = 1
    assert world.state == NEITHER
    world.coordinator.scanned = 2
    assert world.state == BOTH


def test_only_a_lease_scan_that_began_after_a_shard_was_finished_shows_the_leases_of_its_children():
    world = World()
    world.coordinator.scanned = world.coordinator.scans_begun = 5
    world.completion.leave(Shard(is_finished=True, is_complete=True))
    assert not world.completion.is_left("a")
    assert world.state == NEITHER
    world.coordinator.scanned = 6
    assert world.state == BOTH


def test_a_shard_that_finishes_meanwhile_is_covered_when_the_leases_of_all_its_children_are_seen():
    world = World("a")
    world.finish("old", "deleted")
    assert world.state == NEITHER
    world.finish("a", "b", "c")
    assert world.state == NEITHER
    world.leases["b"] = Lease("b", Checkpoint.TRIM_HORIZON)
    assert world.state == NEITHER
    world.leases["c"] = Lease("c", Checkpoint.TRIM_HORIZON)
    assert world.state == BOTH


def test_a_consumer_with_an_end_gives_each_shard_its_limit():
    world = World(until=1_700_000_000.0)
    assert world.completion.ends
    limit = world.completion.limit("a")
    assert limit is not None
    assert not limit.is_reached
    world.listed_closed.add("a")
    assert limit._is_closed()
    assert not world.completion.limit("d")._is_closed()
