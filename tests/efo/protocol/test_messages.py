"""Parsing messages to events and errors, and rejection of invalid events (rule R2)."""

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
from efo.model import MAX_SEQUENCE_DIGITS, ChildShard, HashKeyRange, Record
from efo.protocol.eventstream import EventStreamDecoder, EventStreamMessage, encode
from efo.protocol.messages import SubscribeToShardEvent, parse_error_response, parse_message

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
UNTIMED_RECORD = {name: value for name, value in RECORD.items() if name != "ApproximateArrivalTimestamp"}
CONTINUATION = {"ContinuationSequenceNumber": "7"}
CHILDREN = {"ChildShards": [CHILD]}


def event(**fields):
    """Return the message of an event with these fields. By default it has no records."""
    body = {"Records": [], "MillisBehindLatest": 0} | fields
    return EventStreamMessage(EVENT_HEADERS, json.dumps(body).encode())


def record(**fields):
    return RECORD | fields


class TestEvents:
    def test_a_record_is_parsed_with_all_fields(self):
        assert parse_message(event(Records=[RECORD], MillisBehindLatest=250, **CONTINUATION)) == SubscribeToShardEvent(
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
    def test_an_event_with_a_continuation_is_not_the_end_of_the_shard(self, children):
        parsed = parse_message(event(**CONTINUATION, **children))
        assert parsed.continuation_sequence_number == "7"
        assert not parsed.is_shard_end

    @pytest.mark.parametrize("continuation", [{}, {"ContinuationSequenceNumber": None}])
    def test_an_event_with_child_shards_is_the_end_of_the_shard(self, continuation):
        parsed = parse_message(event(Records=[RECORD], **CHILDREN, **continuation))
        assert parsed.is_shard_end
        assert len(parsed.records) == 1
        assert parsed.child_shards == (
            ChildShard(CHILD["ShardId"], ("shardId-000000000000",), HashKeyRange(*CHILD["HashKeyRange"].values())),
        )

    def test_optional_fields_may_be_missing_and_unknown_fields_are_ignored(self):
        bare = {name: value for name, value in RECORD.items() if name != "EncryptionType"} | {"New": [{}]}
        [parsed] = parse_message(event(Records=[bare], New={"a": 1}, **CONTINUATION)).records
        assert parsed.encryption_type is None

    @pytest.mark.scenario("G69")
    @pytest.mark.parametrize("arrival", [{}, {"ApproximateArrivalTimestamp": None}], ids=["missing", "null"])
    def test_a_record_without_an_arrival_time_gets_zero(self, arrival):
        """The arrival time is optional in AWS's model, like the encryption type."""
        read = parse_message(event(Records=[RECORD, UNTIMED_RECORD | arrival], MillisBehindLatest=7, **CONTINUATION))
        assert [record.approximate_arrival_timestamp for record in read.records] == [1700000000.123, 0.0]
        timed, untimed = read.records
        assert untimed == msgspec.structs.replace(timed, approximate_arrival_timestamp=0.0)
        assert (read.millis_behind_latest, read.continuation_sequence_number) == (7, "7")
        assert (
            parse_message(event(Records=[UNTIMED_RECORD], **CHILDREN)).child_shards
            == parse_message(event(**CHILDREN)).child_shards
        )

    @pytest.mark.parametrize("key", [{}, {"PartitionKey": None}], ids=["missing", "null"])
    @pytest.mark.parametrize("timed", [True, False], ids=["timed", "untimed"])
    def test_a_record_may_have_no_partition_key(self, key, timed):
        """As on a stream with the record distribution strategy AUTO. AWS's model and its example differ in the form."""
        keyless = {name: value for name, value in RECORD.items() if name != "PartitionKey"} | key
        if not timed:
            del keyless["ApproximateArrivalTimestamp"]
        first, second, last = parse_message(event(Records=[RECORD, keyless, RECORD], **CONTINUATION)).records
        assert (first.partition_key, second.partition_key, last.partition_key) == ("kéy", None, "kéy")
        assert (second.data, second.encryption_type) == (b"hello", "KMS")

    def test_an_encryption_type_that_is_new_is_kept_as_it_is(self):
        [parsed] = parse_message(event(Records=[record(EncryptionType="QUANTUM")], **CONTINUATION)).records
        assert parsed.encryption_type == "QUANTUM"

    def test_the_order_of_headers_does_not_matter(self):
        message = event(**CONTINUATION)
        assert parse_message(
            EventStreamMessage(dict(reversed(EVENT_HEADERS.items())), message.payload)
        ) == parse_message(message)

    def test_a_record_of_ten_mebibytes_is_parsed(self):
        data = bytes(range(256)) * (10 * 1024 * 1024 // 256)
        sent = record(Data=base64.b64encode(data).decode())
        decoder = EventStreamDecoder()
        decoder.receive_data(encode(EVENT_HEADERS, event(Records=[sent], **CONTINUATION).payload))
        [message] = decoder.messages()
        assert parse_message(message).records[0].data == data

    @pytest.mark.parametrize("number", ["0", "7", "42", "9" * MAX_SEQUENCE_DIGITS])
    def test_a_sequence_number_may_have_one_digit_or_the_most(self, number):
        for count in (1, 2):
            message = event(Records=[record(SequenceNumber=number)] * count, **CONTINUATION)
            assert [one.sequence_number for one in parse_message(message).records] == [number] * count


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "neither"),
        ({"ChildShards": []}, "neither"),
        ({**CONTINUATION, **CHILDREN}, "a continuation and child shards"),
        ({"ChildShards": [CHILD, {**CHILD, "ParentShards": []}]}, "no parents"),
        ({"ChildShards": [{**CHILD, "ShardId": "a/b"}]}, "or of its parent, is none"),
        ({"ChildShards": [{**CHILD, "ParentShards": ["shardId-0", "a/b"]}]}, "or of its parent, is none"),
        ({"ContinuationSequenceNumber": ""}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "LATEST"}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "-1"}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "\u0663"}, "not a sequence number"),
        ({"ContinuationSequenceNumber": "9" * 130}, "not a sequence number"),
        ({"ContinuationSequenceNumber": 7}, "cannot be parsed"),
        ({**CONTINUATION, "Records": [record(SequenceNumber="x")]}, "not a decimal integer"),
        ({**CONTINUATION, "Records": [RECORD, record(SequenceNumber="9" * 5000)]}, "9' is not a decimal integer"),
        ({**CONTINUATION, "Records": [RECORD, record(SequenceNumber="9" * 130)]}, "9' is not a decimal integer"),
        ({**CONTINUATION, "Records": [RECORD, record(SequenceNumber="")]}, "number '' is not a decimal integer"),
        ({**CONTINUATION, "Records": [RECORD, record(SequenceNumber="-1")]}, "'-1' is not a decimal integer"),
        ({**CONTINUATION, "Records": [RECORD, record(SequenceNumber="\u0663")]}, "is not a decimal integer"),
        ({**CONTINUATION, "Records": [record(Data="not base64")]}, "cannot be parsed"),
        ({**CONTINUATION, "Records": [record(PartitionKey=7)]}, "cannot be parsed"),
        ({**CONTINUATION, "Records": None}, "cannot be parsed"),
        ({**CONTINUATION, "Records": [{**UNTIMED_RECORD, "Data": None}]}, "cannot be parsed"),
        ({**CONTINUATION, "Records": [{**UNTIMED_RECORD, "SequenceNumber": "x"}]}, "not a decimal integer"),
        ({**CONTINUATION, "MillisBehindLatest": "soon"}, "cannot be parsed"),
        ({"ChildShards": [{**CHILD, "HashKeyRange": None}]}, "cannot be parsed"),
        (
            {"ChildShards": [{**CHILD, "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "f"}}]},
            "hash keys",
        ),
    ],
)
@pytest.mark.scenario("G48")
def test_an_invalid_event_is_rejected(fields, text):
    with pytest.raises(EventError, match=text):
        parse_message(event(**fields))


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"Records":[]}', DEEP])
def test_a_payload_that_is_not_an_event_is_rejected(payload):
    with pytest.raises(EventError, match="cannot be parsed"):
        parse_message(EventStreamMessage(EVENT_HEADERS, payload))


@pytest.mark.parametrize("kind", ["initial-response", "SomethingNew", None, 3])
def test_events_of_other_types_are_ignored(kind):
    headers = {":message-type": "event"} | ({":event-type": kind} if kind else {})
    assert parse_message(EventStreamMessage(headers, b"{}")) is None


def test_messages_of_other_types_are_ignored():
    assert parse_message(EventStreamMessage({":message-type": "news"}, b"{}")) is None


@pytest.mark.parametrize("headers", [{}, {":message-type": 1}, {":message-type": b"event"}])
def test_a_message_without_a_type_is_rejected(headers):
    with pytest.raises(EventError, match="expected a text, such as event"):
        parse_message(EventStreamMessage(headers, b"{}"))


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
        ("InvalidArgumentException", ServiceError, False),
        ("SomethingNewException", InternalFailureError, True),
    ],
)
def test_an_exception_frame_is_a_service_error_of_its_type(name, kind, retryable):
    error = parse_message(
        EventStreamMessage({":message-type": "exception", ":exception-type": name}, b'{"message":"because"}')
    )
    assert type(error) is kind
    assert (error.code, error.message, error.status, error.retryable) == (name, "because", None, retryable)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", ""),
        (b"{}", ""),
        (b'{"Message":"capital"}', "capital"),
        (b'{"message":null,"Message":"capital"}', "capital"),
        (b'{"message":7}', "a response of 13 bytes that is no error of AWS"),
        (b"Authorization: secret", "a response of 21 bytes that is no error of AWS"),
        (b"\xff\xfe", "a response of 2 bytes that is no error of AWS"),
        (memoryview(b"a view"), "a response of 6 bytes that is no error of AWS"),
        (DEEP, "a response of 500000 bytes that is no error of AWS"),
    ],
)
def test_the_message_of_an_exception_frame_is_read_from_any_payload(payload, text):
    error = parse_message(
        EventStreamMessage({":message-type": "exception", ":exception-type": "ResourceInUseException"}, payload)
    )
    assert (type(error), error.message) == (ResourceInUseError, text)


def test_an_exception_frame_without_a_type_is_an_unknown_exception():
    assert parse_message(EventStreamMessage({":message-type": "exception"}, b"{}")).code == "UnknownException"


def test_an_error_frame_is_a_service_error():
    headers = {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "sorry"}
    error = parse_message(EventStreamMessage(headers, b""))
    assert (type(error), str(error)) == (InternalFailureError, "InternalFailure: sorry")
    assert parse_message(EventStreamMessage({":message-type": "error"}, b"")).code == "UnknownError"


@pytest.mark.parametrize(
    ("status", "body", "kind", "code", "message"),
    [
        (400, b'{"__type":"KMSDisabledException","message":"off"}', KmsError, "KMSDisabledException", "off"),
        (400, b'{"__type":"com.amazonaws.kinesis#ThrottlingException"}', ThrottledError, "ThrottlingException", ""),
        (403, b'{"__type":"AccessDeniedException","Message":"no"}', AccessDeniedError, "AccessDeniedException", "no"),
        (500, b"{}", InternalFailureError, "HTTP500", ""),
        (503, b"<html>busy</html>", InternalFailureError, "HTTP503", "a response of 17 bytes that is no error of AWS"),
        (404, b"", ServiceError, "HTTP404", ""),
        (400, b"\xff", ServiceError, "HTTP400", "a response of 1 bytes that is no error of AWS"),
        (400, b'{"__type":null}', ServiceError, "HTTP400", "a response of 15 bytes that is no error of AWS"),
        (400, b'["__type"]', ServiceError, "HTTP400", "a response of 10 bytes that is no error of AWS"),
        (400, b"x" * 100_000, ServiceError, "HTTP400", "a response of 100000 bytes that is no error of AWS"),
        (400, DEEP, ServiceError, "HTTP400", "a response of 500000 bytes that is no error of AWS"),
    ],
)
def test_an_http_error_response_is_a_service_error(status, body, kind, code, message):
    error = parse_error_response(status, body)
    assert (type(error), error.code, error.message, error.status) == (kind, code, message, status)
