from __future__ import annotations

import ssl
import time
from functools import partial

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session
import msgspec
import pytest
import trio

from efo.testing import FakeKinesis, FakeSettings
from proofs.load.fake import LoadKinesis
from proofs.load.settings import Load

FIRST = "shardId-000000000000"


@pytest.fixture(params=[FakeKinesis, partial(LoadKinesis, Load(shards={"load": 1}))], ids=["fake", "load"])
async def served(request):
    """A fake with the system clock, as real clients need it. With a load, it uses the other server."""
    settings = FakeSettings(consumer_creating=0, stream_creating=0, stream_updating=0)
    async with request.param(settings=settings, clock=time.time) as fake:
        fake.create_stream("s")
        yield fake


async def open_tls(address, *protocols):
    context = ssl.create_default_context(cafile=address.ca_file)
    if protocols:
        context.set_alpn_protocols(protocols)
    tcp = await trio.open_tcp_stream(address.host, address.port)
    stream = trio.SSLStream(tcp, context, server_hostname=address.host, https_compatible=True)
    await stream.do_handshake()
    return stream


async def subscribe(fake, client):
    """Subscribe, read a stored record, and read a record that is put later."""
    fake.put("s", "key", b"first")
    call = await client.subscribed(fake.register("s", "c").arn, FIRST)
    assert (await call.next_event())["Records"][0]["PartitionKey"] == "key"
    fake.put("s", "next", b"second")
    assert (await call.next_event())["Records"][0]["PartitionKey"] == "next"


async def test_subscribe_to_shard_over_tls(served, http2_client):
    async with served.serve() as address:
        assert address.url == f"https://127.0.0.1:{address.port}"
        async with await open_tls(address, "h2", "http/1.1") as stream:
            assert stream.selected_alpn_protocol() == "h2"
            await subscribe(served, http2_client(stream))


async def test_subscribe_to_shard_over_tls_with_prior_knowledge(served, http2_client):
    """The AWS SDK for Java 2 uses no ALPN."""
    async with served.serve() as address, await open_tls(address) as stream:
        assert stream.selected_alpn_protocol() is None
        await subscribe(served, http2_client(stream))


async def test_subscribe_to_shard_without_tls_with_prior_knowledge(served, http2_client):
    async with served.serve(tls=False) as address:
        assert (address.url, address.ca_file) == (f"http://127.0.0.1:{address.port}", None)
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await subscribe(served, http2_client(stream))


@pytest.mark.parametrize("tls", [True, False])
async def test_aiobotocore_can_use_the_control_plane(served, tls):
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession, retries={"max_attempts": 0}
    )
    async with (
        served.serve(tls=tls) as address,
        aiobotocore.session.get_session().create_client(
            "kinesis",
            region_name="us-east-1",
            endpoint_url=address.url,
            aws_access_key_id="fake",
            aws_secret_access_key="fake",
            verify=str(address.ca_file) if tls else None,
            config=config,
        ) as kinesis,
    ):
        await kinesis.create_stream(StreamName="t", ShardCount=2)
        summary = (await kinesis.describe_stream_summary(StreamName="t"))["StreamDescriptionSummary"]
        assert (summary["StreamStatus"], summary["OpenShardCount"]) == ("ACTIVE", 2)
        assert {"s", "t"} <= set((await kinesis.list_streams())["StreamNames"])

        put = await kinesis.put_records(
            StreamName="t", Records=[{"Data": bytes([n]) * 300, "PartitionKey": f"k{n}"} for n in range(200)]
        )
        assert put["FailedRecordCount"] == 0
        stored = [record.data for records in served.records("t").values() for record in records]
        assert sorted(stored) == [bytes([n]) * 300 for n in range(200)]

        await kinesis.split_shard(StreamName="t", ShardToSplit=FIRST, NewStartingHashKey="1000")
        await kinesis.merge_shards(
            StreamName="t", ShardToMerge="shardId-000000000003", AdjacentShardToMerge="shardId-000000000001"
        )
        shards = (await kinesis.list_shards(StreamName="t"))["Shards"]
        assert [shard.get("ParentShardId") for shard in shards] == [None, None, FIRST, FIRST, "shardId-000000000003"]

        arn = summary["StreamARN"]
        registered = (await kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c"))["Consumer"]
        described = await kinesis.describe_stream_consumer(ConsumerARN=registered["ConsumerARN"])
        consumer = described["ConsumerDescription"]
        assert (consumer["ConsumerStatus"], consumer["StreamARN"]) == ("ACTIVE", arn)
        assert abs(consumer["ConsumerCreationTimestamp"].timestamp() - time.time()) < 3600
        with pytest.raises(kinesis.exceptions.ResourceInUseException):
            await kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")
        with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
            await kinesis.describe_stream_summary(StreamName="none")


@pytest.mark.parametrize("protocols", [("http/1.1",), ()])
async def test_http1_is_used_if_the_client_chooses_it(served, protocols):
    async with served.serve() as address, await open_tls(address, *protocols) as stream:
        assert stream.selected_alpn_protocol() == (protocols[0] if protocols else None)
        await stream.send_all(
            b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: Kinesis_20131202.ListStreams\r\n"
            b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
        )
        received = b""
        while data := await stream.receive_some():
            received += data
        assert msgspec.json.decode(received.partition(b"\r\n\r\n")[2])["StreamNames"][-1] == "s"


async def test_a_port_in_use_raises_oserror(served):
    async with served.serve(tls=False) as address:
        with pytest.raises(OSError, match="in use"):
            async with served.serve(port=address.port, tls=False):
                pytest.fail("the port is in use")


async def test_a_failed_handshake_does_not_affect_other_clients(served, http2_client):
    async with served.serve() as address:
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
            while True:
                try:
                    if not await stream.receive_some():
                        break
                except trio.BrokenResourceError:
                    break
        async with await trio.open_tcp_stream(address.host, address.port):
            pass  # a client that closes without sending anything
        async with await open_tls(address, "h2") as stream:
            await subscribe(served, http2_client(stream))


async def test_leaving_the_context_closes_connections_and_releases_the_port(served, http2_client):
    async with served.serve(tls=False) as address:
        stream = await trio.open_tcp_stream(address.host, address.port)
        client = http2_client(stream)
        call = await client.subscribed(served.register("s", "c").arn, FIRST)
    with pytest.raises((EOFError, trio.BrokenResourceError)):
        await call.next_message()
    assert served.subscriptions("s", FIRST).live == 0
    await stream.aclose()
    async with served.serve(port=address.port, tls=False):
        pass


async def test_the_ca_file_is_deleted_with_the_server(served):
    async with served.serve() as address:
        assert "BEGIN CERTIFICATE" in address.ca_file.read_text()
    assert not address.ca_file.exists()
