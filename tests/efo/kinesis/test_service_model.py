"""What AWS's service model makes optional is optional here, and what it may add later does no harm.

The model is the one in botocore. Members that it requires are given, and no others; then members and values of
enumerations that it does not know.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import botocore.session
import msgspec
import pytest

from efo.errors import InternalFailureError, TransportError
from efo.kinesis.aws.control_plane import AwsControlPlane
from efo.kinesis.service_call import PutRecordsEntry, PutRecordsResult, _Response
from efo.model import ChildShard, HashKeyRange, Position, Record
from efo.protocol.eventstream import EventStreamMessage
from efo.protocol.messages import SubscribeToShardEvent, UntimedRecord, parse_message
from efo.protocol.polling import RecordsPage, parse_page

EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
NEW = "SOMETHING_NEW"
IN_JSON = {"timestamp": 1_767_225_600.0, "blob": "eA==", "boolean": False, "integer": 1024, "long": 1024}
PARSED = IN_JSON | {"timestamp": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "blob": b"x"}
TEXTS = {"StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s", "SequenceNumber": "7", "HashKey": "0"}


@pytest.fixture(scope="module")
def model():
    return botocore.session.get_session().get_service_model("kinesis")


def value(shape, *, everything: bool, parsed: bool) -> Any:
    """Return a value of a shape: with all members, or with those alone that are required.

    `parsed`: as botocore returns it; otherwise as it is in JSON. Enumerations have a value that is new.
    """
    match shape.type_name:
        case "structure":
            members = {
                name: value(member, everything=everything, parsed=parsed)
                for name, member in shape.members.items()
                if everything or name in shape.required_members
            }
            return members | ({"NewMember": {"a": [1]}} if everything else {})
        case "list":
            return [value(shape.member, everything=everything, parsed=parsed)]
        case "string":
            return NEW if shape.enum else TEXTS.get(shape.name, "text")
        case simple:
            return (PARSED if parsed else IN_JSON)[simple]


@pytest.mark.parametrize(
    ("struct", "shape", "added"),
    [
        (SubscribeToShardEvent, "SubscribeToShardEvent", set()),
        (RecordsPage, "GetRecordsOutput", set()),
        (UntimedRecord, "Record", set()),
        (Record, "Record", {"ApproximateArrivalTimestamp"}),  # without it, the record is read as UntimedRecord
        (ChildShard, "ChildShard", set()),
        (HashKeyRange, "HashKeyRange", set()),
        (PutRecordsResult, "PutRecordsResultEntry", set()),
        (_Response, "PutRecordsOutput", set()),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_no_member_is_required_that_the_model_does_not_require(model, struct, shape, added):
    required = {
        field.encode_name
        for field in msgspec.structs.fields(struct)
        if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
    }
    assert required - added <= set(model.shape_for(shape).required_members)


def test_a_request_has_no_member_that_the_model_does_not_know(model):
    names = {field.encode_name for field in msgspec.structs.fields(PutRecordsEntry)}
    assert names == set(model.shape_for("PutRecordsRequestEntry").members)
    assert msgspec.json.encode(PutRecordsEntry(b"x")) == b'{"Data":"eA=="}'


def of_shard_end(members):
    return {name: member for name, member in members.items() if name != "ContinuationSequenceNumber"}


@pytest.mark.parametrize("everything", [False, True], ids=["required members", "and new ones"])
def test_an_event_is_read(model, everything):
    """An end of a shard has all members but the continuation; other events have no child shards."""
    members = value(model.shape_for("SubscribeToShardEvent"), everything=everything, parsed=False)
    if everything:
        members = of_shard_end(members)
    event = parse_message(EventStreamMessage(EVENT, msgspec.json.encode(members)))
    [record] = event.records
    assert (record.sequence_number, record.data) == ("7", b"x")
    assert record.partition_key == ("text" if everything else None)
    assert record.encryption_type == (NEW if everything else None)
    assert event.is_shard_end == everything


@pytest.mark.parametrize("everything", [False, True], ids=["required members", "and new ones"])
def test_a_page_is_read(model, everything):
    members = value(model.shape_for("GetRecordsOutput"), everything=everything, parsed=False)
    members.pop("ChildShards", None)
    page = parse_page(msgspec.json.encode(members | {"NextShardIterator": "next"}))
    assert [record.data for record in page.records] == [b"x"]
    assert page.millis_behind_latest == (1024 if everything else None)


class Answers:
    """Answers each call by the model, as aiobotocore would, or as efo's own connection would."""

    region = "us-east-1"

    def __init__(self, model, *, everything: bool, parsed: bool) -> None:
        self._operations = {_botocore_name(name): name for name in model.operation_names}
        self._model = model
        self._options = {"everything": everything, "parsed": parsed}

    async def call(self, operation, **_arguments):
        shape = self._model.operation_model(self._operations[operation]).output_shape
        answer = {} if shape is None else value(shape, **self._options)
        return answer | {"ResponseMetadata": {"HTTPHeaders": {}}, "NextToken": None}

    async def read(self, operation, _arguments):
        if not self._options["parsed"]:
            answer = await self.call(_botocore_name(operation))
            return answer, {}
        raise TransportError("no connection")


def _botocore_name(operation: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in operation).removeprefix("_")


@pytest.mark.parametrize("parsed", [False, True], ids=["direct", "aiobotocore"])
@pytest.mark.parametrize("everything", [False, True], ids=["required members", "and new ones"])
async def test_each_answer_of_the_control_plane_is_read(model, everything, parsed):
    answers = Answers(model, everything=everything, parsed=parsed)
    through = Answers(model, everything=everything, parsed=True)
    control = AwsControlPlane(through, answers, "s", None)
    stream = await control.describe_stream()
    assert stream.status == NEW
    assert stream.distribution == (NEW if everything else "USER_PARTITION_KEY")
    assert stream.mode == (NEW if everything else None)
    assert not stream.is_auto
    assert len(await control.list_shards()) == everything
    assert len(await control.list_consumers("arn")) == everything
    assert (await control.describe_consumer("arn", "c")).status == NEW
    assert (await control.register_consumer("arn", "c")).status == NEW
    await control.deregister_consumer("arn")
    assert (await control.describe_limits()).shard_limit == 1024
    assert await control.has_advantage() is False
    [record] = (await control.get_records("iterator", 1)).records
    assert record.partition_key == ("text" if everything else None)
    if everything:
        assert await control.get_shard_iterator("shard", Position.trim_horizon()) == "text"
    else:
        with pytest.raises(InternalFailureError, match="has no ShardIterator"):
            await control.get_shard_iterator("shard", Position.trim_horizon())
