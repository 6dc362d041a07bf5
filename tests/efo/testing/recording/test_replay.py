from __future__ import annotations

import math
import tracemalloc

import pytest
import trio

from efo.model import MAX_HASH_KEY
from efo.testing import FakeKinesis, FaultScript, When
from efo.testing.faults.kinds import BitFlip, Reset
from efo.testing.recording.file import RecordedCall, RecordedShard, Recording
from efo.testing.recording.recorder import RecordingWriter

FIRST = "shardId-000000000000"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.jsonl"


async def read_all(fake, http2_client, shard=FIRST, position="TRIM_HORIZON", consumer="c"):
    """Subscribe and read until the stream ends, at most 100 s. Return the pieces with their times, and how it ended."""
    arn = (await describe(fake, consumer)).arn
    client = http2_client(await fake.kinesis("s").connect())
    call = await client.subscribe(arn, shard, position)
    call.take = lambda data: pieces.append((trio.current_time() - started, bytes(data)))
    started, pieces = trio.current_time(), []
    with trio.move_on_after(100):
        while not call.ended:
            await client.pump()
    await client.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    return pieces, call.ended, call.reset


async def describe(fake, name):
    control = fake.kinesis("s").control_plane
    stream = await control.describe_stream()
    return await control.describe_consumer(stream.arn, name)


async def make_recording(path, http2_client, faults=()):
    async with FakeKinesis(faults=FaultScript(faults)) as fake:
        with fake.record(path):
            fake.create_stream("s", 2)
            fake.register("s", "c")
            await trio.sleep(2)
            fake.put_many("s", [(f"k{n}", b"%d" % n) for n in range(20)])
            fake.split("s", FIRST)
            fake.merge("s", "shardId-000000000002", "shardId-000000000003")
            first = await read_all(fake, http2_client)
            second = await read_all(fake, http2_client, "shardId-000000000004")
    return [first, second]


async def replay_recording(path, http2_client, speed=1.0):
    async with FakeKinesis() as fake:
        assert fake.replay(path, speed=speed) == ("s",)
        fake.register("s", "c")
        await trio.sleep(2)
        first = await read_all(fake, http2_client)
        second = await read_all(fake, http2_client, "shardId-000000000004")
        return [first, second], await fake.kinesis("s").control_plane.list_shards()


async def test_a_replay_sends_the_same_bytes_at_the_same_times(path, http2_client, autojump_clock):
    recorded = await make_recording(path, http2_client)
    again, shards = await replay_recording(path, http2_client)
    assert again == recorded
    (pieces, ended, _), (idle, open_end, _) = recorded
    assert ended
    assert not open_end
    assert len(pieces) >= 2
    assert idle[-1][0] == pytest.approx(95, abs=5)
    assert [shard.parents for shard in shards] == [
        (),
        (),
        (FIRST,),
        (FIRST,),
        ("shardId-000000000002", "shardId-000000000003"),
    ]


async def test_a_replay_with_infinite_speed_does_not_wait(path, http2_client, autojump_clock):
    recorded = await make_recording(path, http2_client)
    again, _ = await replay_recording(path, http2_client, math.inf)
    recorded_data, replayed_data = (b"".join(data for _, data in calls[1][0]) for calls in (recorded, again))
    assert replayed_data.startswith(recorded_data)  # the rest was sent after the client had stopped reading
    assert again[1][0][-1][0] == 0


@pytest.mark.parametrize("fault", [Reset("ENHANCE_YOUR_CALM"), BitFlip("crc", 9)], ids=repr)
async def test_faults_are_recorded_and_replayed(fault, path, http2_client, autojump_clock):
    recorded = await make_recording(path, http2_client, [(fault, When(shard="shardId-000000000004", nth=2))])
    again, _ = await replay_recording(path, http2_client)
    assert again == recorded
    if isinstance(fault, Reset):
        assert recorded[1][2] == 11


async def test_after_the_last_recorded_call_only_an_initial_response_is_sent(path, http2_client, autojump_clock):
    await make_recording(path, http2_client)
    async with FakeKinesis() as fake:
        fake.replay(path)
        fake.register("s", "c")
        await trio.sleep(2)
        await read_all(fake, http2_client)
        pieces, ended, _ = await read_all(fake, http2_client)
    assert b"initial-response" in pieces[0][1]
    assert (len(pieces), ended) == (1, False)


async def test_a_recording_contains_the_calls_and_how_they_ended(path, http2_client, autojump_clock):
    await make_recording(path, http2_client)
    with Recording.open(path) as recording:
        calls = recording.calls.values()
        assert [lines[0].subscribe.shard for lines in calls] == [FIRST, "shardId-000000000004"]
        assert [(lines[-1].end, lines[-1].closed) for lines in calls] == [(True, False), (False, True)]


async def test_a_replay_holds_one_line_of_a_call_and_not_the_file(path, http2_client, autojump_clock):
    """64 MB are read with less than 4: a recording of a busy stream is larger than the memory."""
    with path.open("wb") as file:
        writer = RecordingWriter(file)
        writer.shards("s", (RecordedShard(FIRST, "0", str(MAX_HASH_KEY), (), "1"),))
        call = writer.begin(RecordedCall("s", FIRST, "TRIM_HORIZON"))
        for _ in range(1000):
            writer.data(call, bytes(64_000))
        writer.end(call, clean=True)
    async with FakeKinesis() as fake:
        tracemalloc.start()
        try:
            fake.replay(path, speed=math.inf)
            fake.register("s", "c")
            await trio.sleep(2)
            client = http2_client(await fake.kinesis("s").connect())
            reply = await client.subscribe((await describe(fake, "c")).arn, FIRST, "TRIM_HORIZON")
            received = []
            reply.take = lambda data: received.append(len(data))
            while not reply.ended:
                await client.pump()
                del client.events[:]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert sum(received) == 64_000_000
    assert peak < 4_000_000, f"{peak / 1e6:.1f} MB"
