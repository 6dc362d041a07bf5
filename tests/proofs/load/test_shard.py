from __future__ import annotations

from itertools import pairwise

import pytest

from efo.model import MAX_HASH_KEY, HashKeyRange, Position
from efo.protocol.deaggregation import deaggregate
from efo.protocol.eventstream import EventStreamDecoder
from efo.protocol.messages import parse_message
from efo.testing.errors import FakeError
from efo.testing.state.sequence_numbers import shard_number_of
from efo.testing.state.shards import ShardState
from proofs.load.settings import Load
from proofs.load.shard import LoadShard

OPENED = 1_767_225_600.0


class Clock:
    def __init__(self):
        self.now = OPENED + 1000

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shard():
    return ShardState(3, 0, MAX_HASH_KEY, int(OPENED * 1000))


@pytest.fixture
def log_of(shard, clock):
    def log_of(**load):
        return LoadShard(
            shard, Load(**({"records_per_event": 4, "record_bytes": 10} | load)), ["k1", "k2", "k3"], clock
        )

    return log_of


def read(message):
    decoder = EventStreamDecoder()
    decoder.receive_data(message)
    (decoded,) = decoder.messages()
    return parse_message(decoded)


@pytest.mark.parametrize("records", [1, 3, 1000])
def test_sequence_numbers_increase_and_belong_to_the_shard(log_of, shard, records):
    log = log_of(records_per_event=records)
    events = [read(log.render(n)) for n in [*range(300), 10**6, 10**9]]
    numbers = [int(record.sequence_number) for event in events for record in event.records]
    assert len(numbers) == 302 * records
    assert all(lower < higher for lower, higher in pairwise([int(shard.starting_number), *numbers]))
    for event in events:
        assert shard_number_of(event.records[0].sequence_number) == 3
        assert event.continuation_sequence_number == event.records[-1].sequence_number


def test_an_event_is_the_same_in_any_order_of_rendering(log_of):
    log = log_of(rate=1.0)
    first = [log.render(n) for n in (0, 1, 2)]
    assert [log.render(n) for n in (2, 0, 1)] == [first[2], first[0], first[1]]


def test_any_sequence_number_finds_the_next_record(log_of):
    log = log_of()
    records = [(n, index, record) for n in range(3) for index, record in enumerate(read(log.render(n)).records)]
    following = [*[(n, index) for n, index, _ in records[1:]], (3, 0)]
    for (event, index, record), after in zip(records, following, strict=True):
        number = record.sequence_number
        assert log.find(Position.at(number)) == (event, index)
        assert log.find(Position.after(number)) == after
        assert log.find(Position.at(str(int(number) + 1))) == after


def test_a_partial_event_has_the_last_records_of_the_event(log_of):
    log = log_of()
    whole = read(log.render(5)).records
    assert read(log.render(5, 3)).records == whole[3:]
    assert read(log.render(5, 1)).records == whole[1:]


def test_a_position_before_the_first_record_finds_the_first_record(log_of, shard):
    assert log_of().find(Position.after(shard.starting_number)) == (0, 0)
    assert log_of().find(Position.trim_horizon()) == (0, 0)


def test_invalid_positions_are_rejected(log_of, clock):
    with pytest.raises(FakeError, match="did not come from this shard"):
        log_of().find(Position.at("1"))
    with pytest.raises(FakeError, match="in the future"):
        log_of().find(Position.at_timestamp(clock.now + 1))


def test_without_a_rate_there_is_always_an_event_and_latest_is_the_first_unread_one(log_of, clock):
    log = log_of()
    assert log.has(10**9)
    assert log.find(Position.latest()) == (0, 0)
    assert read(log.render(6)).records[0].approximate_arrival_timestamp == clock.now
    assert log.find(Position.latest()) == (7, 0)
    assert log.find(Position.at_timestamp(OPENED + 1)) == (7, 0)
    assert log.find(Position.at_timestamp(OPENED - 1)) == (0, 0)
    assert read(log.render(7)).millis_behind_latest == 0


def test_with_a_rate_events_arrive_by_the_clock(log_of, clock):
    log = log_of(rate=8.0)  # two events with four records per second
    clock.now = OPENED
    assert (log.has(0), log.arrived) == (False, 0)
    clock.now = OPENED + 0.5
    assert (log.has(0), log.has(1), log.arrived) == (True, False, 1)
    assert log.find(Position.latest()) == (1, 0)
    clock.now = OPENED + 10.2
    assert log.arrived == 20
    assert log.find(Position.at_timestamp(OPENED + 3.0)) == (5, 0)
    assert log.find(Position.at_timestamp(OPENED + 3.1)) == (6, 0)
    event = read(log.render(5))
    assert event.records[0].approximate_arrival_timestamp == OPENED + 3.0
    assert event.millis_behind_latest == 6700
    assert read(log.render(19)).millis_behind_latest == 0


@pytest.mark.parametrize(("rate", "events"), [(None, 7), (4.0, 5)])
def test_a_closed_shard_has_no_new_events(log_of, shard, clock, rate, events):
    log = log_of(rate=rate)
    log.render(6 if rate is None else 0)
    shard.close(int((OPENED + 5.5) * 1000))
    assert log.has(events - 1)
    assert not log.has(events)
    assert log.arrived == events


def test_aggregates_contain_user_records_of_the_shard(log_of):
    log = log_of(aggregated=5)
    seen = []
    for n in range(3):
        for record in read(log.render(n)).records:
            deaggregation = deaggregate(record, HashKeyRange("0", str(MAX_HASH_KEY)))
            assert deaggregation.problem is None
            assert {len(user.data) for user in deaggregation.records} == {10}
            seen += [(int(user.sequence_number), user.sub_sequence_number) for user in deaggregation.records]
    assert len(set(seen)) == 3 * 4 * 5
    assert seen == sorted(seen)


def test_data_differ_between_records_but_not_between_runs(log_of):
    data = [record.data for record in read(log_of().render(0)).records]
    assert len(set(data)) == 4
    assert [record.data for record in read(log_of().render(0)).records] == data
    assert [record.data for record in read(log_of(seed=1).render(0)).records] != data


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"record_bytes": 0}, "record_bytes is 0"),
        ({"records_per_event": -1}, "records_per_event is -1"),
        ({"aggregated": 0}, "aggregated is 0"),
        ({"rate": 0.0}, "rate is 0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"shards": {}}, "at least one stream"),
        ({"record_bytes": 1_000_000, "records_per_event": 100}, "fewer records_per_event"),
    ],
)
def test_an_invalid_load_is_rejected(load, message):
    with pytest.raises(ValueError, match=message):
        Load(**load)
