"""The stream that a consumer or a producer is opened on: a name, an ARN, or a client that is open already."""

from __future__ import annotations

import pytest

from efo.errors import ConfigurationError
from efo.kinesis.opening import check_stream, open_client
from efo.testing import FakeKinesis


@pytest.mark.parametrize(
    ("stream", "where", "message"),
    [
        (7, {}, "stream=7: expected the name or ARN of a stream"),
        ("", {}, "stream is empty"),
        ("orders", {"region": None, "profile": ""}, "profile is empty"),
        ("orders", {"endpoint_url": 7}, "endpoint_url=7: expected a text, or None"),
    ],
)
def test_a_wrong_stream_or_place_is_one_clear_error(stream, where, message):
    with pytest.raises(ConfigurationError, match=message):
        check_stream(stream, where)


async def test_an_open_client_takes_no_place_and_stays_open(autojump_clock):
    async with FakeKinesis() as fake:
        fake.create_stream("orders")
        client = fake.kinesis("orders")
        with pytest.raises(ConfigurationError, match="region has no effect on an open client"):
            check_stream(client, {"profile": None, "region": "eu-west-1"})
        check_stream(client, {"region": None})
        async with open_client(client, {"region": None}) as opened:
            assert opened is client
        assert await client.control_plane.list_shards()


async def test_a_name_is_opened_where_it_is(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "example")
    where = {"region": "eu-west-1", "endpoint_url": "https://127.0.0.1:4567"}
    async with open_client("orders", where) as client:
        assert (client.stream, client.authority) == ("orders", "127.0.0.1:4567")
