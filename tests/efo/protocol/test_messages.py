"""What a message says: an event, an error, or nothing; and that nonsense is refused (rule R2)."""

import base64
import json

import msgspec
import pytest

from efo.errors import (
    AccessDeniedError,
    EventError,
    InternalFailureError,
    KmsError,
    ResourceInUseError,
    ResourceNotFoundError,
    ServiceError,
    ThrottledError,
)
from efo.model import ChildShard, HashKeyRange, Record
from efo.protocol.eventstream import Decoder, Message, encode
from efo.protocol.messages import SubscribeToShardEvent, parse, parse_refusal

EVENT_HEADERS = {
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/x-amz-json-1.1",
    ":message-type": "event",
}
RECORD = {
    "SequenceNumber": "49590338271490256608559692538361571095921575989136588898",
    "ApproximateArrivalTimestamp": 1700000000.123,
    "Data": "aGVsbG8=",
    "PartitionKey": "kéy",
    "EncryptionType": "KMS",
}
CHILD = {
    "ShardId": "shardId-000000000001",
    "ParentShards": ["shardId-000000000000"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "170141183460469231731687303715884105727"},
}
UNDATED = {name: value for name, value in RECORD.items() if name != "ApproximateArrivalTimestamp"}
GOES_ON = {"ContinuationSequenceNumber": "7"}
ENDS = {"ChildShards": [CHILD]}


def event(**members):
    """An event's message: records and times are there unless given."""
    body = {"Records": [], "MillisBehindLatest": 0} | members
    return Message(EVENT_HEADERS, json.dumps(body).encode())


def record(**members):
    return RECORD | members


class TestEvents:
    def test_records(self):
        assert parse(event(Records=[RECORD], MillisBehindLatest=250, **GOES_ON)) == SubscribeToShardEvent(
            records=(
                Record(
                    sequence_number=RECORD["SequenceNumber"],
                    approximate_arrival_timestamp=1700000000.123,
                    data=b"hello",
                    partition_key="kéy",
                    encryption_type="KMS",
                ),
            ),
            millis_behind_latest=250,
            continuation_sequence_number="7",
        )

    @pytest.mark.parametrize("children", [{}, {"ChildShards": []}, {"ChildShards": None}])
    def test_an_idle_event_goes_on(self, children):
        parsed = parse(event(**GOES_ON, **children))
        assert parsed.continuation_sequence_number == "7"
        assert not parsed.is_shard_end

    @pytest.mark.parametrize("continuation", [{}, {"ContinuationSequenceNumber": None}])
    def test_the_end_of_a_shard(self, continuation):
        parsed = parse(event(Records=[RECORD], **ENDS, **continuation))
        assert parsed.is_shard_end
        assert len(parsed.records) == 1
        assert parsed.child_shards == (
            ChildShard(CHILD["ShardId"], ("shardId-000000000000",), HashKeyRange(*CHILD["HashKeyRange"].values())),
        )

    def test_optional_members_may_be_missing_and_new_ones_come(self):
        bare = {name: value for name, value in RECORD.items() if name != "EncryptionType"} | {"New": [{}]}
        [parsed] = parse(event(Records=[bare], New={"a": 1}, **GOES_ON)).records
        assert parsed.encryption_type is None

    @pytest.mark.scenario("G69")
    @pytest.mark.parametrize("arrival", [{}, {"ApproximateArrivalTimestamp": None}], ids=["missing", "null"])
    def test_a_record_without_a_time_of_arrival(self, arrival):
        """AWS's model promises it no more than the type of encryption."""
        read = parse(event(Records=[RECORD, UNDATED | arrival], MillisBehindLatest=7, **GOES_ON))
        assert [record.approximate_arrival_timestamp for record in read.records] == [1700000000.123, 0.0]
        dated, undated = read.records
        assert undated == msgspec.structs.replace(dated, approximate_arrival_timestamp=0.0)
        assert (read.millis_behind_latest, read.continuation_sequence_number) == (7, "7")
        assert parse(event(Records=[UNDATED], **ENDS)).child_shards == parse(event(**ENDS)).child_shards

    def test_the_order_of_headers_does_not_matter(self):
        message = event(**GOES_ON)
        assert parse(Message(dict(reversed(EVENT_HEADERS.items())), message.payload)) == parse(message)

    def test_a_record_of_ten_mebibytes(self):
        data = bytes(range(256)) * (10 * 1024 * 1024 // 256)
        sent = record(Data=base64.b64encode(data).decode())
        decoder = Decoder()
        decoder.receive_data(encode(EVENT_HEADERS, event(Records=[sent], **GOES_ON).payload))
        [message] = decoder.messages()
        assert parse(message).records[0].data == data


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({}, "neither"),
        ({"ChildShards": []}, "neither"),
        ({**GOES_ON, **ENDS}, "both"),
        ({"ChildShards": [CHILD, {**CHILD, "ParentShards": []}]}, "without parents"),
        ({"ContinuationSequenceNumber": ""}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "LATEST"}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "-1"}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "\u0663"}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "9" * 130}, "not a sequence number"),
        ({"ContinuationSequenceNumber": 7}, "does not parse"),
        ({**GOES_ON, "Records": [record(SequenceNumber="x")]}, "not decimal"),
        ({**GOES_ON, "Records": [RECORD, record(SequenceNumber="9" * 5000)]}, "not decimal"),
        ({**GOES_ON, "Records": [record(Data="not base64")]}, "does not parse"),
        ({**GOES_ON, "Records": [record(PartitionKey=None)]}, "does not parse"),
        ({**GOES_ON, "Records": None}, "does not parse"),
        ({**GOES_ON, "Records": [{**UNDATED, "Data": None}]}, "does not parse"),
        ({**GOES_ON, "Records": [{**UNDATED, "SequenceNumber": "x"}]}, "not decimal"),
        ({**GOES_ON, "MillisBehindLatest": "soon"}, "does not parse"),
        ({"ChildShards": [{**CHILD, "HashKeyRange": None}]}, "does not parse"),
        (
            {"ChildShards": [{**CHILD, "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "f"}}]},
            "hash keys",
        ),
    ],
)
@pytest.mark.scenario("G48")
def test_events_that_are_refused(members, said):
    with pytest.raises(EventError, match=said):
        parse(event(**members))


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"Records":[]}', DEEP])
def test_payloads_that_are_no_event(payload):
    with pytest.raises(EventError, match="does not parse"):
        parse(Message(EVENT_HEADERS, payload))


@pytest.mark.parametrize("kind", ["initial-response", "SomethingNew", None, 3])
def test_events_of_other_types_say_nothing(kind):
    headers = {":message-type": "event"} | ({":event-type": kind} if kind else {})
    assert parse(Message(headers, b"{}")) is None


@pytest.mark.parametrize("headers", [{}, {":message-type": "news"}, {":message-type": 1}, {":message-type": b"event"}])
def test_messages_of_no_known_type_are_refused(headers):
    with pytest.raises(EventError, match="expected event, exception or error"):
        parse(Message(headers, b"{}"))


@pytest.mark.parametrize(
    ("name", "kind", "retryable"),
    [
        ("ResourceInUseException", ResourceInUseError, True),
        ("ResourceNotFoundException", ResourceNotFoundError, False),
        ("InternalFailureException", InternalFailureError, True),
        ("KMSThrottlingException", ThrottledError, True),
        ("KMSDisabledException", KmsError, False),
        ("KMSAccessDeniedException", KmsError, False),
        ("KMSInvalidStateException", KmsError, False),
        ("KMSNotFoundException", KmsError, False),
        ("KMSOptInRequired", KmsError, False),
        ("AccessDeniedException", AccessDeniedError, False),
        ("SomethingNewException", ServiceError, False),
    ],
)
def test_exception_frames(name, kind, retryable):
    error = parse(Message({":message-type": "exception", ":exception-type": name}, b'{"message":"because"}'))
    assert type(error) is kind
    assert (error.code, error.message, error.status, error.retryable) == (name, "because", None, retryable)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", ""),
        (b"{}", ""),
        (b'{"Message":"capital"}', "capital"),
        (b'{"message":null,"Message":"capital"}', "capital"),
        (b'{"message":7}', '{"message":7}'),
        (b"not json", "not json"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (memoryview(b"a view"), "a view"),
        (DEEP, DEEP[:200].decode()),
    ],
)
def test_exception_frames_with_any_payload(payload, said):
    error = parse(Message({":message-type": "exception", ":exception-type": "ResourceInUseException"}, payload))
    assert (type(error), error.message) == (ResourceInUseError, said)


def test_an_exception_frame_without_a_name():
    assert parse(Message({":message-type": "exception"}, b"{}")).code == "UnknownException"


def test_error_frames():
    headers = {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "sorry"}
    error = parse(Message(headers, b""))
    assert (type(error), str(error)) == (InternalFailureError, "InternalFailure: sorry")
    assert parse(Message({":message-type": "error"}, b"")).code == "UnknownError"


@pytest.mark.parametrize(
    ("status", "body", "kind", "code", "message"),
    [
        (400, b'{"__type":"KMSDisabledException","message":"off"}', KmsError, "KMSDisabledException", "off"),
        (400, b'{"__type":"com.amazonaws.kinesis#ThrottlingException"}', ThrottledError, "ThrottlingException", ""),
        (403, b'{"__type":"AccessDeniedException","Message":"no"}', AccessDeniedError, "AccessDeniedException", "no"),
        (500, b"{}", InternalFailureError, "HTTP500", ""),
        (503, b"<html>busy</html>", InternalFailureError, "HTTP503", "<html>busy</html>"),
        (404, b"", ServiceError, "HTTP404", ""),
        (400, b"\xff", ServiceError, "HTTP400", "\ufffd"),
        (400, b'{"__type":null}', ServiceError, "HTTP400", '{"__type":null}'),
        (400, b'["__type"]', ServiceError, "HTTP400", '["__type"]'),
        (400, b"x" * 100_000, ServiceError, "HTTP400", "x" * 200),
        (400, DEEP, ServiceError, "HTTP400", DEEP[:200].decode()),
    ],
)
def test_refusals(status, body, kind, code, message):
    error = parse_refusal(status, body)
    assert (type(error), error.code, error.message, error.status) == (kind, code, message, status)
