"""Which failures of a shard's relay isolate it (rule R11)."""

from __future__ import annotations

from functools import partial

import pytest

from efo.errors import ConfigurationError, EfoError, IsolateShardError
from efo.model import Record
from efo_service.log.disk import DiskFiles
from efo_service.log.sink import LogSink
from efo_service.relay.destination import isolating
from efo_service.relay.errors import RecordRefusedError, SinkDefectError, SinkError, SinkFencedError, SinkFullError
from efo_service.relay.relay import relay_shard
from tests.efo_service.relay.relaying import ListedShard, to


async def outcome(error: Exception, **which: bool) -> Exception:
    """Return what the reader raises when the relay fails with this error."""

    async def relay(shard: str) -> None:
        assert shard == "the shard"
        raise error

    with pytest.raises(type(error) if not any(which.values()) else Exception) as caught:
        await isolating(relay, **{"refused_records": False, "sink_errors": False, **which})("the shard")
    return caught.value


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (RecordRefusedError("it is too large"), "refused_records"),
        (SinkDefectError("it failed"), "refused_records"),
        (SinkFullError("no space"), "sink_errors"),
        (SinkError("no permission"), "sink_errors"),
    ],
)
async def test_a_failure_isolates_the_shard_if_its_setting_says_so(error, setting) -> None:
    isolated = await outcome(error, **{setting: True})
    assert isinstance(isolated, IsolateShardError)
    assert isolated.__cause__ is error
    assert str(isolated) == str(error)
    other = {"refused_records", "sink_errors"} - {setting}
    assert await outcome(error, **{other.pop(): True}) is error
    assert await outcome(error) is error


async def test_a_shard_that_another_worker_has_opened_is_isolated() -> None:
    """Whatever the settings: the sink works, and the other worker relays the shard."""

    async def relay(_shard: str) -> None:
        raise SinkFencedError("opened by another writer")

    with pytest.raises(IsolateShardError, match="opened by another writer"):
        await isolating(relay, refused_records=False, sink_errors=False)("the shard")


@pytest.mark.parametrize("error", [ConfigurationError("wrong"), EfoError("other"), AssertionError("a defect")])
async def test_other_errors_stop_everything(error) -> None:
    assert await outcome(error, refused_records=True, sink_errors=True) is error


async def test_a_record_that_the_trace_extractor_cannot_read_isolates_its_shard(tmp_path, make_batch) -> None:
    """A producer may have caused it: the service must not end and meet it again."""

    def extract(record: Record) -> None:
        if record.data == b"value-3":
            raise ValueError("secret data")

    shard = ListedShard([make_batch(5)])
    relay = partial(relay_shard, destination=to(LogSink(DiskFiles(tmp_path), "topic", extract=extract)))
    with pytest.raises(IsolateShardError, match=r"the trace extractor failed at .*: ValueError") as caught:
        await isolating(relay, refused_records=True, sink_errors=False)(shard)
    assert "secret" not in str(caught.value)
    assert shard.acked == []
