"""Memory that a client can make the fake use: by open streams, unread data, and unfinished request bodies."""

from __future__ import annotations

import dataclasses
import tracemalloc

import pytest
import trio

from efo.testing import FakeKinesis

FIRST = "shardId-000000000000"
MIB = 1024 * 1024


@pytest.mark.parametrize(("connection_window", "events"), [(0, 4), (2**30, 30)])
async def test_each_stream_with_a_closed_window_holds_at_most_one_event(
    settings, http2_client, connection_window, events, autojump_clock
):
    async with FakeKinesis(settings=dataclasses.replace(settings, consumers_per_stream=100)) as fake:
        fake.create_stream("s")
        fake.put_many("s", [("k", bytes(10_000))] * 5000)  # 50 MB, stored once
        arns = [fake.register("s", f"c{number}").arn for number in range(30)]
        client = http2_client(await fake.kinesis("s").connect())
        client.opens_windows = False
        if connection_window:
            client.h2.increment_flow_control_window(connection_window)
        tracemalloc.start()
        try:
            for arn in arns:
                await client.subscribe(arn, FIRST)
                with trio.move_on_after(1):
                    while True:
                        await client.pump()
            del client.events[:]
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert fake.subscriptions("s", FIRST).live == 30
        assert held < (events + 1) * 1.5 * MIB, f"{held / MIB:.1f} MiB; an event is 1 MiB, in base64"


async def test_unfinished_request_bodies_of_a_connection_share_one_limit(fake, client, autojump_clock):
    head = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "fake")]
    stream_ids = [client.h2.get_next_available_stream_id() + 2 * number for number in range(6)]
    tracemalloc.start()
    try:
        for stream_id in stream_ids:
            client.h2.send_headers(stream_id, head)
        for _ in range(15 * 64):  # 15 MiB for each stream, 90 MiB in total
            for stream_id in stream_ids:
                while client.h2.local_flow_control_window(stream_id) < 16_384:
                    await client.flush()
                    await client.pump()
                client.h2.send_data(stream_id, bytes(16_384))
            await client.flush()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 75 * MIB, f"{held / MIB:.0f} MiB are held, and 90 MiB were sent"
    call = await client.call("ListStreams", {})
    assert (await call.json())["StreamNames"] == ["s"]
