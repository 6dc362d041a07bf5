"""Ctrl-C at each place of the synchronous surface where it can come: nothing is lost, nothing hangs."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

import efo
import efo.sync
from tests.efo.adapters.interrupts import Interrupt
from tests.efo.adapters.programs import World, use_virtual_time

HOME = Path(efo.__file__).parent
DOOR = (f"{HOME}/sync/", f"{HOME}/adapters/")


@pytest.fixture(autouse=True)
def virtual_time(monkeypatch):
    use_virtual_time(monkeypatch)


def again(interrupt, function, *args):
    """Call a function until it is not interrupted, as a program that catches Ctrl-C."""
    try:
        with interrupt.armed():
            return function(*args)
    except KeyboardInterrupt:
        return function(*args)


def next_batch(consumer, _number):
    batch = next(consumer)
    return batch.records, batch


def next_record(consumer, _number):
    record, batch = next(consumer.records())
    return [record], batch


def next_of_either_kind(consumer, number):
    return (next_record if number % 2 else next_batch)(consumer, number)


@pytest.mark.parametrize("take", [next_batch, next_record, next_of_either_kind])
def test_an_interrupted_iteration_that_goes_on_has_each_record_once_and_in_order(take):
    world, got, places = World(shards=1, event_records=1), [], 0
    with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:
        for number in count():
            world.put(number)
            taking, acking = Interrupt(number, *DOOR), Interrupt(number, *DOOR)
            records, batch = again(taking, take, consumer, number)
            got += [int(record.data) for record in records]
            again(acking, consumer.ack_through, batch)
            places += taking.has_come + acking.has_come
            if not (taking.has_come or acking.has_come):
                break
    assert got == list(range(number + 1))
    assert places > 20
    (lease,) = world.leases().values()
    assert lease.owner is None
    assert not lease.checkpoint.is_sentinel


def test_an_interrupted_handler_ends_and_a_record_that_is_acked_was_handled():
    for number in count():
        world, got, interrupt = World(shards=1), [], Interrupt(number, *DOOR)
        world.put(number)

        def handle(batch):
            got.extend(int(record.data) for record in batch)  # noqa: B023 - called within the round
            consumer.drain()

        with efo.sync.open_consumer(world.stream(), **world.options()) as consumer:
            try:
                with interrupt.armed():
                    consumer.run(efo.sync.Handler(handle))
            except KeyboardInterrupt:
                assert interrupt.has_come
        for lease in world.leases().values():  # none if it came before the first was made
            assert lease.owner is None
            assert got == [number] or lease.checkpoint.is_sentinel
        if not interrupt.has_come:
            break
    assert got == [number]
    assert number > 20
