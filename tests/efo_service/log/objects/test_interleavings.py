"""Every step of a writer and of maintenance, with everything else in between: the proof of the commit protocol.

A step is one request to the store. An actor is stopped before or after a step, or its request is refused, or its
answer is lost, or the request is late. Meanwhile others take the partition over, write, fold, merge, let everything
expire, and clean up. Then the actor goes on. Records and positions must stay right, and a writer that was reported of a
success must have its records in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from efo_service.log.objects.files import ObjectFiles
from efo_service.log.reader_offsets import commit_reader, read_readers
from efo_service.object_store.memory import Fault, MemoryStore, StoreStep
from efo_service.object_store.store import ExistsError, Version
from efo_service.relay.errors import SinkError, SinkFencedError, StoreUnavailableError
from tests.efo_service.log.objects.logs import TOPIC, Log, make_records, number_of, prepare

Actor = Callable[[Log, MemoryStore], None]


def opens(log: Log, store: MemoryStore) -> None:
    log.writer(store)


def writes(log: Log, store: MemoryStore) -> None:
    writer = log.writer(store)
    for count in (1, 3):
        _append(log, writer, count)


def folds(log: Log, store: MemoryStore) -> None:
    log.fold(store)


def merges(log: Log, store: MemoryStore) -> None:
    log.merge(store)


def expires(log: Log, store: MemoryStore) -> None:
    log.expire(store)


def cleans(log: Log, store: MemoryStore) -> None:
    log.compactor(store).remove_orphans()


ACTORS = [opens, writes, folds, merges, expires, cleans]


def _append(log: Log, writer, count: int) -> None:
    """Commit, and check that what was reported as a success is in the log: at its offsets, and under its position."""
    before = writer.end
    log.append(writer, count)
    assert writer.end == before + count
    assert log.partition().bounds()[1] >= before + count, "a commit that succeeded is not in the log"
    assert number_of(writer.position) == writer.end


def take_over(log: Log) -> None:
    """Let others do everything: another writer, several folds, a merge, an expiry, the cleaning."""
    store = log.client()
    writer = log.writer(store)
    _append(log, writer, 2)
    log.fold(store)
    _append(log, writer, 1)
    log.fold(store)
    log.merge(store)
    log.expire(store)
    _append(log, writer, 2)
    log.compactor(store).remove_orphans()


def compact(log: Log) -> None:
    """Let others only maintain."""
    store = log.client()
    log.fold(store)
    log.merge(store)


def append(log: Log) -> None:
    """Let the writer that was there before commit once more, if it is not fenced yet."""
    with suppress(SinkFencedError):
        _append(log, log.writers[0], 1)


def clean(log: Log) -> None:
    """Let others only look for segments that no head names: a fold has written one, and not named it yet."""
    log.compactor(log.client()).remove_orphans()


def prepared() -> Log:
    """A log with tombstones, two segments and live commits."""
    log = Log()
    writer = log.writer()
    for count in (2, 1):
        log.append(writer, count)
    log.fold()
    log.append(writer, 1)
    log.fold()
    for count in (1, 2):
        log.append(writer, count)
    log.check(7)
    log.writers.append(writer)
    return log


def steps_of(actor: Actor) -> int:
    log = prepared()
    store = log.client()
    actor(log, store)
    return store.requests


def cases() -> Iterator[tuple[Actor, int]]:
    for actor in ACTORS:
        for number in range(1, steps_of(actor) + 1):
            yield actor, number


CASES = [pytest.param(actor, number, id=f"{actor.__name__}-{number}") for actor, number in cases()]


def finish(log: Log) -> None:
    """Nothing is lost, whatever happened: another writer goes on, and maintenance cleans up."""
    end = log.check()
    writer = log.writer()
    assert writer.end == end == number_of(writer.position)
    _append(log, writer, 2)
    log.fold()
    log.check(end + 2)
    log.compactor().remove_orphans()
    read = log.partition().read_head()
    named = {segment.key for segment in read.head.segments}
    assert {key for key in log.memory.objects if "/segments/" in key} == named, "orphans stay"
    log.check(end + 2)
    # Every number up to the newest is taken, for ever.
    newest = log.partition().newest(-1)
    assert log.commits() == [f"{TOPIC}/0/commits/{number:020}" for number in range(newest.number + 1)]
    assert all(log.partition().header(n).kind == "tombstone" for n in range(read.head.next)), "not all are tombstoned"


@pytest.mark.parametrize("others", [take_over, compact, clean, append])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("actor", "number"), CASES)
def test_an_actor_that_is_stalled_at_any_step_changes_nothing_that_others_have_done(
    actor, number, is_done, others
) -> None:
    log = prepared()
    store = log.client()
    worked = []

    def on_step(step: StoreStep) -> None:
        if (step.number, step.is_done) == (number, is_done) and not worked:
            worked.append(step)
            others(log)

    store.on_step = on_step
    with suppress(SinkFencedError):
        actor(log, store)
    assert worked
    finish(log)


@pytest.mark.parametrize("fault", ["refused", "lost", "late"])
@pytest.mark.parametrize("others", [take_over, clean, None])
@pytest.mark.parametrize(("actor", "number"), CASES)
def test_an_actor_whose_request_fails_and_who_is_killed_loses_nothing(actor, number, fault: Fault, others) -> None:
    """The request may be done later than everything that others do."""
    log = prepared()
    store = log.client()
    store.fault = lambda _operation, _key: fault if store.requests >= number else None
    with suppress(StoreUnavailableError, SinkFencedError):
        actor(log, store)
    if others is not None:
        others(log)
    store.arrive()
    finish(log)


@pytest.mark.parametrize("fault", ["refused", "lost", "late"])
@pytest.mark.parametrize("others", [None, compact])
@pytest.mark.parametrize("number", range(1, steps_of(writes) + 2))
def test_a_writer_that_repeats_its_commit_writes_each_record_once(number, fault: Fault, others) -> None:
    """The answer of one request is lost. Perhaps maintenance folds the commit before the writer looks for it."""
    log = prepared()
    store = log.client()

    def failing(_operation: str, _key: str) -> Fault | None:
        return fault if store.requests == number else None

    store.fault = failing
    try:
        writer = log.writer(store)
    except StoreUnavailableError:
        store.arrive()
        writer = log.writer(store)
    for count in (1, 3):
        end = writer.end
        laid_out = prepare(writer, make_records(count, number_of(writer.position)))
        for _ in range(3):
            with suppress(StoreUnavailableError):
                writer.commit(laid_out)
                break
            if others is not None:
                store.arrive()
                others(log)
        assert writer.end == end + count
    store.arrive()
    log.check(11)
    finish(log)


@pytest.mark.parametrize("number", range(1, 12))
def test_a_burial_that_is_cut_off_twice_is_finished(log, number) -> None:
    """A fold is killed before it makes tombstones, and the one that goes on with them is killed at each step."""
    writer = log.writer()
    for _ in range(3):
        log.append(writer, 1)
    for killed_at in ("tombstones", number):
        store = log.client()
        replaced = []

        def fault(operation: str, key: str, at=killed_at, store=store, replaced=replaced) -> Fault | None:
            replaced.append(key) if operation == "replace" else None
            is_killed = len(replaced) > 1 if at == "tombstones" else store.requests >= at
            return "refused" if is_killed else None

        store.fault = fault
        with suppress(StoreUnavailableError):
            log.fold(store)
    finish(log)


def test_an_answer_that_is_lost_costs_no_second_upload(log) -> None:
    writer = log.writer()
    created = []

    def lost(operation: str, key: str) -> Fault | None:
        created.append(key) if operation == "create" else None
        return "lost" if operation == "create" and len(created) == 1 else None

    log.memory.fault = lost
    laid_out = prepare(writer, make_records(2))
    with pytest.raises(StoreUnavailableError):
        writer.commit(laid_out)
    writer.commit(laid_out)
    assert len(created) == 1
    log.check(2)


def test_a_request_that_arrives_while_it_is_repeated_counts_once(log) -> None:
    """The key is free when the writer looks, and taken when it repeats the request: by the first one."""
    writer = log.writer()
    store = log.memory
    store.fault = lambda operation, _key: "late" if operation == "create" else None
    laid_out = prepare(writer, make_records(2))
    with pytest.raises(StoreUnavailableError):
        writer.commit(laid_out)
    store.fault = lambda _operation, _key: None
    store.on_step = lambda step: store.arrive() if step.operation == "create" and not step.is_done else None
    writer.commit(laid_out)
    assert writer.end == 2
    log.check(2)


def test_a_conflict_without_an_object_is_repeated(log, monkeypatch) -> None:
    """S3 answers 409 if another request for the key is in progress, though none of them may succeed."""
    writer = log.writer()
    laid_out = prepare(writer, make_records(2))
    with monkeypatch.context() as patched:

        def conflict(_key: str, _content: bytes) -> Version:
            raise ExistsError

        patched.setattr(log.memory, "create", conflict)
        with pytest.raises(StoreUnavailableError, match="has no such object yet"):
            writer.commit(laid_out)
    writer.commit(laid_out)
    log.check(2)


@pytest.mark.parametrize("records", [1, 40])
def test_a_stalled_writer_is_refused_for_ever(log, records) -> None:
    """Its number was committed, folded, merged, and expired, again and again: the key is still taken."""
    stalled = log.writer(log.client())
    log.append(stalled, 1)
    laid_out = prepare(stalled, make_records(5, 1))
    other = log.writer()
    for _ in range(3):
        for _ in range(records):
            log.append(other, 1)
        log.fold()
        log.merge()
        log.expire()
        log.compactor().remove_orphans()
        end = log.check()
        with pytest.raises(SinkFencedError, match="opened by another writer after this one"):
            stalled.commit(laid_out)
        assert log.check() == end
        stalled = log.writer(log.client())  # the roles change: now this one is fenced by the next
        laid_out = prepare(stalled, make_records(5, number_of(stalled.position)))
        other = log.writer()
    log.check(1 + 3 * records)


def test_of_two_writers_that_open_at_once_exactly_one_can_commit(make_log) -> None:
    """Each is stopped at each of its steps, while the other opens and commits."""
    steps = steps_of(opens)
    for number in range(1, steps + 1):
        for is_done in (False, True):
            log = prepared()
            store = log.client()
            others = []

            def on_step(step: StoreStep, log=log, others=others, at=(number, is_done)) -> None:
                if (step.number, step.is_done) == at and not others:
                    others.append(log.writer())
                    log.append(others[0], 1)

            store.on_step = on_step
            first = log.writer(store)
            committed = 0
            for writer in (others[0], first):
                with suppress(SinkFencedError):
                    log.append(writer, 1)
                    committed += 1
            assert committed == 1
            log.check(9)


def test_a_reader_sees_no_gap_and_no_record_twice_at_any_step_of_others() -> None:
    """It reads everything while others work at each of its steps."""
    for others in (take_over, compact):
        number = 0
        while True:
            number += 1
            log = prepared()
            reader = Log(log.client())
            reader.memory.on_step = lambda step, log=log, number=number, others=others: (
                others(log) if step == StoreStep(number, step.operation, step.key, is_done=True) else None
            )
            try:
                found = reader.values()
            except SinkError:
                assert others is take_over  # what it began to read has expired
                found = []
            start = found[0][0] if found else 0
            assert found == [(at, b"value-%d" % at) for at in range(start, start + len(found))]
            assert not found or others is take_over or len(found) == 7
            if reader.memory.requests < number:
                break
        assert number > 10


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fault", ["refused", "lost", "late"])
def test_reader_offsets_are_one_commit_or_another(log, number, fault: Fault) -> None:
    log.writer()
    commit_reader(ObjectFiles(log.memory), TOPIC, "query", {0: 1}, 10.0)
    store = log.client()
    store.fault = lambda _operation, _key: fault if store.requests == number else None
    with suppress(StoreUnavailableError):
        commit_reader(ObjectFiles(store), TOPIC, "query", {0: 2}, 11.0)
    [reader] = read_readers(ObjectFiles(log.memory), TOPIC)
    assert reader.offsets in ({0: 1}, {0: 2})
    commit_reader(ObjectFiles(log.memory), TOPIC, "query", {0: 3}, 12.0)
    store.arrive()
    assert read_readers(ObjectFiles(log.memory), TOPIC)[0].offsets == {0: 3}
