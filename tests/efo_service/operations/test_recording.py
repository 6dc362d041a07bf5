"""A stream that is recorded and replayed: the same bytes, with original or scaled timing, under virtual time."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
import trio

from efo.consumer.opening import consume
from efo.errors import ResourceNotFoundError
from efo.exception_groups import collapse_groups
from efo.kinesis.registration import Registration
from efo.leases.stores.memory import MemoryLeaseStore
from efo.model import Position, Record
from efo.testing import FakeKinesis, FaultScript, When
from efo.testing.faults.kinds import Refuse, Reset
from efo.testing.recording.file import Recording
from efo.testing.recording.recorder import RecordingWriter
from efo_service.errors import UsageError
from efo_service.operations.recording import StreamRecorder, formatter, matcher

SHARDS = [f"shardId-00000000000{number}" for number in range(5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.jsonl"


async def record(fake, path, seconds, start=Position.trim_horizon(), only=(), meanwhile=None):  # noqa: B008 - frozen
    """Record a stream for some seconds; return the recording and the notes."""
    notes = []
    kinesis = fake.kinesis("s")
    consumer = await Registration(kinesis.control_plane, "recorder").ensure()
    with path.open("wb") as file, collapse_groups():
        writer = RecordingWriter(file)
        recorder = StreamRecorder(kinesis, consumer.arn, writer, subscribes_per_second=5, note=notes.append)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                if meanwhile is not None:
                    nursery.start_soon(meanwhile)
                await recorder.run(start, only)
    with Recording.open(path) as recording:
        return SimpleNamespace(
            streams=recording.streams, calls={number: list(lines) for number, lines in recording.calls.items()}
        ), notes


async def records_of(fake, seconds):
    """Consume a stream for some seconds; return the data of its records with their times, by shard."""
    received, started = {}, trio.current_time()

    async def handle(batch):
        for item in batch:
            received.setdefault(batch.shard_id, []).append((trio.current_time() - started, item.data))

    with trio.move_on_after(seconds):
        await consume(fake.kinesis("s"), handle, application="reader", leases=MemoryLeaseStore())
    return received


def put(fake, first, count):
    fake.put_many("s", [(f"k{number}", b"%d" % number) for number in range(first, first + count)])


def bodies(recording):
    """Return the bytes of each recorded call, by shard."""
    result = {}
    for lines in recording.calls.values():
        data = b"".join(line.data for line in lines if line.data is not None)
        result.setdefault(lines[0].subscribe.shard, []).append(data)
    return result


async def test_a_recorded_stream_replays_byte_for_byte(path, tmp_path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 2)
        put(fake, 0, 20)

        async def reshard():
            await trio.sleep(30)
            fake.split("s", SHARDS[0])
            put(fake, 20, 20)

        recorded, _ = await record(fake, path, 60, meanwhile=reshard)
    async with FakeKinesis() as fake:
        assert fake.replay(path) == ("s",)
        again, _ = await record(fake, tmp_path / "again.jsonl", 60)
    assert bodies(again) == bodies(recorded)
    assert sorted(bodies(recorded)) == SHARDS[:4]
    assert next(lines[-1].at - lines[0].at for lines in again.calls.values()) == pytest.approx(30, abs=0.5)


async def test_records_without_a_partition_key_replay_without_one(path, tmp_path, autojump_clock):
    async def keys_of(fake):
        keys = {}

        async def handle(batch):
            keys.update((item.data, item.partition_key) for item in batch)

        with trio.move_on_after(60):
            await consume(fake.kinesis("s"), handle, application="reader", leases=MemoryLeaseStore())
        return keys

    async with FakeKinesis() as fake:
        fake.create_stream("s", 2, distribution="AUTO")
        fake.put_many("s", [(None, b"%d" % number) for number in range(10)])
        fake.put("s", "key", b"10")
        recorded, _ = await record(fake, path, 60)
    async with FakeKinesis() as fake:
        fake.replay(path)
        again, _ = await record(fake, tmp_path / "again.jsonl", 60)
    assert bodies(again) == bodies(recorded)
    async with FakeKinesis() as fake:
        fake.replay(path)
        assert await keys_of(fake) == {**{b"%d" % number: None for number in range(10)}, b"10": "key"}


@pytest.mark.parametrize(("speed", "at"), [(1.0, 50.0), (10.0, 5.0), (math.inf, 0.0)])
async def test_a_consumer_reads_a_replay_with_original_or_scaled_timing(speed, at, path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 1)

        async def write():
            await trio.sleep(50)
            put(fake, 0, 10)

        await record(fake, path, 100, meanwhile=write)
    async with FakeKinesis() as fake:
        fake.replay(path, speed=speed)
        received = await records_of(fake, 90)
    [(shard, items)] = received.items()
    assert (shard, [data for _, data in items]) == (SHARDS[0], [b"%d" % number for number in range(10)])
    started = 2.0  # the consumer becomes ACTIVE, and the first lease is taken
    assert items[0][0] == pytest.approx(at + started, abs=started + 1)


async def test_shards_keep_their_ids_numbers_and_lineage_in_the_replay(path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 2)
        fake.split("s", SHARDS[0])
        fake.merge("s", SHARDS[3], SHARDS[1])
        before = await fake.kinesis("s").control_plane.list_shards()
        await record(fake, path, 20)
    async with FakeKinesis() as fake:
        fake.replay(path)
        await trio.sleep(10)
        assert await fake.kinesis("s").control_plane.list_shards() == before


async def test_a_parent_is_recorded_to_its_end_before_its_children(path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 2)
        put(fake, 0, 20)
        fake.split("s", SHARDS[0])
        fake.merge("s", SHARDS[3], SHARDS[1])
        put(fake, 20, 20)
        recorded, _ = await record(fake, path, 30)
    began = {lines[0].subscribe.shard: lines[0].at for lines in recorded.calls.values()}
    ended = {lines[0].subscribe.shard: lines[-1] for lines in recorded.calls.values()}
    assert sorted(began) == SHARDS
    assert ended[SHARDS[0]].end
    assert ended[SHARDS[0]].at <= min(began[SHARDS[2]], began[SHARDS[3]])
    assert max(ended[SHARDS[1]].at, ended[SHARDS[3]].at) <= began[SHARDS[4]]
    assert ended[SHARDS[4]].closed  # the recording ended first


async def test_the_call_after_five_minutes_continues_after_the_first(path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 1)
        recorded, _ = await record(fake, path, 400)
    first, second = (lines for lines in recorded.calls.values())
    assert first[-1].end
    assert second[0].subscribe.position == "AFTER_SEQUENCE_NUMBER"
    assert second[0].at - first[-1].at < 1


async def test_a_broken_call_is_recorded_and_repeated_with_a_note(path, autojump_clock):
    async with FakeKinesis(faults=FaultScript([(Reset("INTERNAL_ERROR"), When(nth=1))])) as fake:
        fake.create_stream("s", 1)
        put(fake, 0, 1)
        recorded, notes = await record(fake, path, 20)
    first, second = (lines for lines in recorded.calls.values())
    assert (first[-1].closed, second[0].subscribe.shard) == (True, SHARDS[0])
    assert len(notes) == 1
    assert "again in 1 s" in notes[0]


async def test_only_chosen_shards_and_their_descendants_are_recorded(path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 2)
        fake.split("s", SHARDS[0])
        fake.merge("s", SHARDS[3], SHARDS[1])
        recorded, _ = await record(fake, path, 20, only=[SHARDS[1]])
    assert list(bodies(recorded)) == [SHARDS[1], SHARDS[4]]


async def test_latest_records_what_comes_and_a_time_what_came_since(path, tmp_path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 1)
        put(fake, 0, 1)

        async def write():
            await trio.sleep(10)
            put(fake, 1, 1)

        later, _ = await record(fake, path, 20, Position.latest(), meanwhile=write)
        since = Position.at_timestamp(fake.clock() - 20)
        earlier, _ = await record(fake, tmp_path / "since.jsonl", 20, since)
    for recording in (later, earlier):
        text = b"".join(bodies(recording)[SHARDS[0]])
        assert (text.count(b'"k0"'), text.count(b'"k1"')) == (0, 1)


async def test_a_refused_first_call_at_latest_skips_nothing(path, autojump_clock):
    refusal = Refuse("LimitExceededException")
    async with FakeKinesis(faults=FaultScript([(refusal, When(operation="SubscribeToShard", nth=1))])) as fake:
        fake.create_stream("s", 1)

        async def write():
            await trio.sleep(0.5)  # the call is repeated after 1 s
            put(fake, 0, 1)

        recorded, notes = await record(fake, path, 20, Position.latest(), meanwhile=write)
    assert "again in 1 s" in notes[0]
    assert [b'"k0"' in body for body in bodies(recorded)[SHARDS[0]]] == [True]


async def test_an_unknown_shard_and_a_missing_stream_are_errors(path, autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("s", 1)
        with pytest.raises(UsageError, match="--shard shardId-9"):
            await record(fake, path, 20, only=["shardId-9"])

        async def delete():
            await trio.sleep(3)
            fake.delete_stream("s")

        with pytest.raises(ResourceNotFoundError):
            await record(fake, path, 2000, meanwhile=delete)


SHARD = "shardId-000000000000"
RECORD = Record("7", 1_700_000_000.123, b'{"id":7}', "customer-7", "KMS")


def line(record=RECORD, form="text", encoding="base64", width=None):
    return formatter(form, "orders", encoding=encoding, width=width)(SHARD, record).decode()


def test_a_line_of_text_has_time_shard_key_and_data():
    assert line() == f'2023-11-14T22:13:20.123Z {SHARD} customer-7 {{"id":7}}\n'


def test_a_record_without_an_arrival_time_has_a_dash():
    assert line(Record("7", 0, b"x", "k")) == f"- {SHARD} k x\n"


def test_a_record_without_a_key_has_a_dash_and_null_in_json():
    record = Record("7", 0, b"x")
    assert line(record) == f"- {SHARD} - x\n"
    assert json.loads(line(record, "json"))["key"] is None
    assert matcher(None, None, "-")(record) is False


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\nb\r\tc", r"a\nb\r\tc"),
        (b"\x1b[2J", r"\x1b[2J"),
        ("\u202egnp.exe\u2028".encode(), r"\u202egnp.exe\u2028"),
        (b"\xff\x00", r"\xff\x00"),
        ("заказ 注文".encode(), "заказ 注文"),
    ],
)
def test_text_has_no_line_breaks_and_no_control_characters(data, shown):
    assert line(Record("7", 0, data, "k")) == f"- {SHARD} k {shown}\n"
    if data != b"\xff\x00":
        assert line(Record("7", 0, b"", data.decode())) == f"- {SHARD} {shown} \n"


def test_a_line_of_text_is_cut_at_the_columns_of_the_terminal():
    start = f"- {SHARD} k "
    assert line(Record("7", 0, b"0123456789", "k"), width=len(start) + 10) == f"{start}0123456789\n"
    assert line(Record("7", 0, b"0123456789", "k"), width=len(start) + 9) == f"{start}01234567…\n"
    # These characters have two columns each.
    assert line(Record("7", 0, "注文注文".encode(), "k"), width=len(start) + 7) == f"{start}注文注…\n"
    assert line(Record("7", 0, b"x" * 1000, "k"), width=1) == "…\n"


def test_json_is_the_line_of_the_sink_and_of_the_export():
    found = json.loads(line(form="json"))
    assert found["headers"][:4] == [
        ["kinesis.stream", "orders"],
        ["kinesis.shard", SHARD],
        ["kinesis.sequence", "7"],
        ["kinesis.sub_sequence", "0"],
    ]
    assert (found["key"], found["value"], found["timestamp"]) == ("customer-7", "eyJpZCI6N30=", 1_700_000_000_123)
    assert json.loads(line(form="json", encoding="utf-8"))["value"] == '{"id":7}'


def test_json_in_utf_8_refuses_other_data_and_says_what_to_do():
    with pytest.raises(UsageError, match=f"{SHARD} 7 is not UTF-8 .* use --encoding base64"):
        line(Record("7", 0, b"\xff", "k"), form="json", encoding="utf-8")


def test_raw_is_the_data_and_a_line_break():
    assert (
        formatter("raw", "orders", encoding="base64", width=5)(SHARD, Record("7", 0, b"\xff\x1b", "k")) == b"\xff\x1b\n"
    )


@pytest.mark.parametrize(
    ("text", "pattern", "key", "matches"),
    [
        ('"id":7', None, None, True),
        ('"id":8', None, None, False),
        ('{"id"', r":\d}$", "customer-7", True),
        (None, r"^\d", None, False),
        (None, None, "customer", False),
        ('"id":7', None, "customer-8", False),
    ],
)
def test_a_record_matches_if_text_pattern_and_key_do(text, pattern, key, matches):
    assert matcher(text, pattern, key)(RECORD) is matches


def test_data_that_is_not_utf_8_is_searched_too():
    record = Record("7", 0, b"\xffid=7", "k")
    assert matcher("id=7", None, None)(record)
    assert matcher(None, "id=[0-9]", None)(record)


def test_without_a_filter_there_is_no_matcher():
    assert matcher(None, None, None) is None


def test_a_wrong_regular_expression_is_refused():
    with pytest.raises(UsageError, match=r"--regex \(: missing \)"):
        matcher(None, "(", None)


def test_json_has_no_characters_that_terminals_obey():
    text = line(Record("7", 0, "\x9b2J\x7f".encode(), "\x9b31m\u202e\U000e0001key"), form="json", encoding="utf-8")
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["key"] == "\x9b31m\u202e\U000e0001key"
    assert json.loads(text)["value"] == "\x9b2J\x7f"
