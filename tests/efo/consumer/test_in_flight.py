"""The batches of a shard that are not acked: what is known of them, and when they are reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from efo.consumer.in_flight import InFlight, check_delivered, check_index, record_index
from efo.errors import ConfigurationError
from efo.events import AcksOverdue, Event, RecordsProcessed
from efo.model import Batch, Record

WALL = 1_700_000_000.0


def batch(number: int, *arrivals: float) -> Batch:
    records = tuple(Record(str(100 * number + n), at, b"", "k") for n, at in enumerate(arrivals or (WALL,)))
    return Batch("orders", "s-0", records, None, 0, number)


class World:
    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.in_flight = InFlight("s-0", lambda: WALL, self.seen.append)

    def deliver(self, *batches: Batch) -> None:
        for delivered in batches:
            self.in_flight.delivered(delivered, trio.current_time(), 7, 1.5)

    def overdue(self) -> list[tuple[int, float]]:
        """Return of how many batches it was reported, and after how many seconds; forget that."""
        reported = [(event.batches, event.oldest) for event in self.seen if isinstance(event, AcksOverdue)]
        self.seen.clear()
        return reported


@pytest.fixture
async def world() -> World:
    return World()


async def test_what_is_in_flight_is_known_until_it_is_acked(world: World, autojump_clock: object) -> None:
    in_flight = world.in_flight
    assert (len(in_flight), in_flight.records, in_flight.oldest) == (0, 0, None)
    world.deliver(batch(1, WALL - 9, WALL - 8), batch(2, 0.0))
    assert (len(in_flight), in_flight.records) == (2, 3)
    assert in_flight.oldest is not None
    assert (in_flight.oldest.last, in_flight.oldest.behind, in_flight.oldest_arrival) == ("101", 1.5, WALL - 9)
    assert in_flight.has_besides(batch(1))
    in_flight.acked([1])
    assert (len(in_flight), in_flight.records, in_flight.oldest_arrival) == (1, 1, None)
    assert in_flight.has_besides(batch(1))
    assert not in_flight.has_besides(batch(2))
    in_flight.forget()
    assert len(in_flight) == 0


async def test_a_batch_of_an_earlier_reading_with_the_same_number_is_none_of_them(
    world: World, autojump_clock: object
) -> None:
    world.deliver(batch(1, WALL, WALL))
    assert world.in_flight.has(batch(1, WALL, WALL))
    assert not world.in_flight.has(batch(1, WALL))
    assert not world.in_flight.has(batch(2, WALL, WALL))


@pytest.mark.parametrize(
    ("arrivals", "ages"),
    [
        ((WALL - 9, WALL - 8), (9.0, 8.0)),
        ((WALL, WALL + 5), (0.0, 0.0)),  # the clock of the host is late
        ((0.0, 0.0), (None, None)),  # the service did not send it
        ((0.0, WALL - 8), (None, 8.0)),
    ],
)
async def test_a_batch_is_reported_once_it_is_acked(
    world: World, autojump_clock: object, arrivals: tuple[float, float], ages: tuple[float | None, float | None]
) -> None:
    world.deliver(batch(1, *arrivals))
    await trio.sleep(3)
    world.in_flight.acked([1, 1, 2])
    assert world.seen == [RecordsProcessed("s-0", 2, 3.0, *ages, 7)]


async def test_a_hundred_batches_are_reported_after_ten_seconds_and_again_whenever_they_have_doubled(
    world: World, autojump_clock: object
) -> None:
    world.deliver(*map(batch, range(99)))
    await trio.sleep(9)
    world.deliver(batch(99))
    assert world.overdue() == []
    await trio.sleep(1)
    world.deliver(batch(100))
    assert world.overdue() == [(101, 10.0)]
    world.deliver(*map(batch, range(101, 201)))
    assert world.overdue() == []
    world.deliver(batch(201))
    assert world.overdue() == [(202, 10.0)]
    await trio.sleep(10)
    world.in_flight.acked(range(102))  # a hundred are left
    world.deliver(batch(202))
    assert world.overdue() == []
    world.in_flight.acked([102, 103])
    world.deliver(batch(203))
    assert world.overdue() == [(100, 10.0)]


async def test_a_batch_is_reported_after_a_minute_and_again_when_the_time_has_doubled(
    world: World, autojump_clock: object
) -> None:
    world.deliver(batch(1), batch(2))
    reported = []
    for now in range(0, 300, 10):
        world.in_flight.watch()
        reported += [(now, *found) for found in world.overdue()]
        await trio.sleep(10)
    assert reported == [(60, 2, 60.0), (120, 2, 120.0), (240, 2, 240.0)]
    assert world.in_flight.slow_for == 300.0


async def test_after_an_ack_the_minute_begins_anew(world: World, autojump_clock: object) -> None:
    world.deliver(batch(1))
    await trio.sleep(100)
    world.in_flight.watch()
    world.in_flight.acked([1])
    world.in_flight.watch()
    world.overdue()
    world.deliver(batch(2))
    await trio.sleep(59)
    assert world.in_flight.slow_for is None
    await trio.sleep(1)
    world.in_flight.watch()
    assert world.overdue() == [(1, 60.0)]


async def test_a_reader_that_may_take_longer_is_reported_later(world: World, autojump_clock: object) -> None:
    world.in_flight.overdue_after = 90.0
    world.deliver(batch(1))
    await trio.sleep(89)
    world.in_flight.watch()
    assert world.overdue() == []
    await trio.sleep(1)
    world.in_flight.watch()
    assert world.overdue() == [(1, 90.0)]


async def test_many_batches_are_reported_by_their_number_alone(world: World, autojump_clock: object) -> None:
    world.deliver(*map(batch, range(100)))
    await trio.sleep(100)
    world.in_flight.watch()
    assert world.overdue() == []
    world.in_flight.acked([0])
    world.in_flight.watch()
    assert world.overdue() == [(99, 100.0)]


TWO = batch(1, WALL, WALL)


@pytest.mark.parametrize("index", [-1, 2, True, 1.0, "0", None])
def test_an_index_that_no_record_of_the_batch_has_is_refused(index: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected 0 to 1"):
        check_index(TWO, index)


def test_a_record_is_found_in_its_batch_and_nowhere_else() -> None:
    for index, record in enumerate(TWO.records):
        check_index(TWO, index)
        assert record_index(TWO, record) == index
        for other in (msgspec.structs.replace(record, data=b"other"), batch(2).records[0]):
            with pytest.raises(ConfigurationError, match="not one of its batch"):
                record_index(TWO, other)
    with pytest.raises(ConfigurationError, match="expected a Record of the batch"):
        record_index(TWO, 0)  # type: ignore[arg-type]
    for check in (lambda: record_index(0, TWO.records[0]), lambda: check_index(0, 0)):  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="batch=0: expected the Batch that was delivered"):
            check()


def test_a_batch_that_the_shard_did_not_deliver_is_refused() -> None:
    class Shard:
        shard_id = "s-0"

        def has_delivered(self, batch: Batch) -> bool:
            return batch is TWO

    check_delivered(Shard(), TWO)
    with pytest.raises(ConfigurationError, match="s-0: ack of batch 2 of s-0, which it did not deliver"):
        check_delivered(Shard(), batch(2))
    with pytest.raises(ConfigurationError, match="batch=0: expected the Batch that the shard delivered"):
        check_delivered(Shard(), 0)  # type: ignore[arg-type]
