"""Reads of the control plane over HTTP/2: the request, the JSON of the response, and what may go wrong with it."""

import json

import h2.events
import pytest
import trio

from efo.errors import (
    AccessDeniedError,
    InternalFailureError,
    ProtocolError,
    ResourceNotFoundError,
    ServiceError,
    SilenceError,
    StreamResetError,
)
from efo.kinesis import service_call
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.service_call import READ_TIMEOUT, ServiceCaller


def respond_with(*chunks, status=200, headers=(), end=True):
    """Return an `on_request` that responds with this status and a body of these chunks, each in a DATA frame."""

    def respond(peer, stream_id):
        peer.h2.send_headers(stream_id, [(":status", str(status)), *headers])
        for chunk in chunks:
            peer.h2.send_data(stream_id, chunk)
        if end:
            peer.h2.end_stream(stream_id)

    return respond


@pytest.fixture
async def caller(server, nursery):
    pool = ConnectionPool(server.connect, address="peer:443")
    await nursery.start(pool.run)

    async def sign(target, body):
        await trio.lowlevel.checkpoint()
        return [("Authorization", f"{target} {len(body)}")]

    return ServiceCaller(pool, sign=sign, authority="kinesis.test", scheme="https")


def open_streams(caller):
    return caller._pool._least_loaded().open_streams


async def test_a_read_returns_the_json_and_the_headers_of_the_response(caller, server, autojump_clock):
    server.on_request = respond_with(b'{"Shards":', b" [1]}", headers=[("date", "today")])
    response, headers = await caller.read("ListShards", {"StreamName": "orders"})
    assert (response, headers["date"]) == ({"Shards": [1]}, "today")
    [request] = server.peers[0].received(h2.events.RequestReceived)
    assert dict(request.headers) == {
        ":method": "POST",
        ":scheme": "https",
        ":authority": "kinesis.test",
        ":path": "/",
        "content-type": "application/x-amz-json-1.1",
        "content-length": "23",
        "x-amz-target": "Kinesis_20131202.ListShards",
        "authorization": "Kinesis_20131202.ListShards 23",
    }
    assert json.loads(server.peers[0].bodies[1]) == {"StreamName": "orders"}
    assert open_streams(caller) == 0


async def test_reads_share_a_connection(caller, server, autojump_clock):
    server.on_request = respond_with(b"{}")
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(caller.read, "ListShards", {})
    assert len(server.peers) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b'{"__type":"ResourceNotFoundException"}', ResourceNotFoundError),
        (403, b'{"__type":"AccessDeniedException"}', AccessDeniedError),
        (500, b"", InternalFailureError),
        (404, b"<html>", ServiceError),
    ],
)
async def test_a_status_other_than_200_is_a_service_error(caller, server, status, body, kind, autojump_clock):
    server.on_request = respond_with(body, status=status)
    with pytest.raises(kind) as raised:
        await caller.read("ListShards", {})
    assert raised.value.status == status
    assert open_streams(caller) == 0


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b'{"a":' * 100_000])
async def test_a_response_that_is_no_json_object_is_a_protocol_error(caller, server, body, autojump_clock):
    chunks = [body[at : at + 16_000] for at in range(0, len(body), 16_000)][:4]
    server.on_request = respond_with(*chunks)
    with pytest.raises(ProtocolError, match="ListShards is no JSON object"):
        await caller.read("ListShards", {})


async def test_a_response_without_an_end_is_a_protocol_error(caller, server, monkeypatch, autojump_clock):
    monkeypatch.setattr(service_call, "MAX_READ", 100)
    server.on_request = respond_with(b" " * 101, end=False)
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        await caller.read("ListShards", {})
    assert open_streams(caller) == 0


async def test_a_response_that_breaks_off_is_a_transport_error(caller, server, autojump_clock):
    def reset(peer, stream_id):
        respond_with(b"{", end=False)(peer, stream_id)
        peer.h2.reset_stream(stream_id)

    server.on_request = reset
    with pytest.raises(StreamResetError):
        await caller.read("ListShards", {})


@pytest.mark.parametrize("on_request", [lambda _peer, _stream_id: None, respond_with(b"{", end=False)])
async def test_a_read_ends_after_its_timeout(caller, server, on_request, autojump_clock):
    server.on_request = on_request
    started = trio.current_time()
    with pytest.raises(SilenceError, match="no complete response to ListShards"):
        await caller.read("ListShards", {})
    assert trio.current_time() - started == pytest.approx(READ_TIMEOUT, abs=0.01)
    assert open_streams(caller) == 0
