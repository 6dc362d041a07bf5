"""Records with many values, and changes of tables: what is read, and what is refused without naming data."""

from __future__ import annotations

import base64
import gzip as standard_gzip
import json
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

import efo
from efo import deserializers as d
from efo.deserializers import compressed
from efo.deserializers.many import unwrapping

SECRET = "hunter2"


class Order(msgspec.Struct):
    id: int
    price: float = 0.0


def refusal(read, data, record):
    with pytest.raises(efo.errors.DeserializationError) as caught:
        read(record(data))
    assert SECRET not in str(caught.value)
    return caught.value.reason


def logs(*messages, kind="DATA_MESSAGE", **changes):
    events = [{"id": str(i), "timestamp": 1767225600000 + i, "message": text} for i, text in enumerate(messages)]
    return json.dumps(
        {
            "messageType": kind,
            "owner": "1",
            "logGroup": "g",
            "logStream": "s",
            "subscriptionFilters": ["f"],
            "logEvents": events,
            **changes,
        }
    ).encode()


# --- JSON lines ------------------------------------------------------------------------------------------------------


def test_each_line_is_a_value_and_empty_lines_are_none(record):
    assert d.json_lines(Order)(record(b'{"id": 1}\n\n{"id": 2}\r\n')) == [Order(1), Order(2)]
    assert d.json_lines()(record(b"")) == []


def test_a_wrong_line_is_named_and_makes_the_record_wrong(record):
    assert "$[1].id" in refusal(d.json_lines(Order), b'{"id": 1}\n{"id": "%b"}\n' % SECRET.encode(), record)
    assert "not JSON lines" in refusal(d.json_lines(), b'{"%b' % SECRET.encode(), record)


def test_lines_are_bounded_together(record):
    read = d.json_lines(max_values=10)
    assert len(read(record(b"1\n" * 30))) == 30
    assert "max_values" in refusal(read, b"1\n" * 2000, record)


# --- compression that may be missing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrap", "pack"),
    [(d.gzip, standard_gzip.compress), (d.zstd, compressed.zstd_module().compress)],
    ids=["gzip", "zstd"],
)
def test_data_that_is_not_compressed_is_passed_on_if_that_is_allowed(record, wrap, pack):
    read = wrap(d.raw, or_plain=True)
    assert read(record(b"plain")) == b"plain"
    assert read(record(b"")) == b""
    assert read(record(pack(b"packed"))) == b"packed"
    broken = pack(b"packed" * 100)[:-9]
    assert refusal(read, broken, record)
    assert refusal(wrap(d.raw), b"plain", record)
    assert "max_size" in refusal(wrap(d.raw, or_plain=True, max_size=10), pack(bytes(100)), record)


# --- CloudWatch Logs -------------------------------------------------------------------------------------------------


def test_the_events_of_cloudwatch_logs_have_values_times_and_ids(record):
    read = d.gzip(d.cloudwatch_logs(d.json(Order)))
    found = read(record(standard_gzip.compress(logs('{"id": 1}', '{"id": 2}'))))
    assert [(event.id, event.message) for event in found] == [("0", Order(1)), ("1", Order(2))]
    assert found.events[1].at == datetime(2026, 1, 1, 0, 0, 0, 1000, UTC)
    assert (len(found), found.owner, found.log_group, found.log_stream) == (2, "1", "g", "s")
    assert found.subscription_filters == ("f",)


def test_a_control_message_has_no_events(record):
    found = d.cloudwatch_logs()(record(logs("CWL CONTROL MESSAGE", kind="CONTROL_MESSAGE")))
    assert (found.is_control, list(found)) == (True, [])


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[" * 2000,
        logs(SECRET, kind=SECRET),
        logs(logEvents=[{"id": "1", "timestamp": 10**18, "message": SECRET}]),
        logs(logEvents=[{"id": "1", "timestamp": SECRET, "message": ""}]),
    ],
)
def test_what_is_no_message_of_cloudwatch_logs_is_refused(record, data):
    assert "not a message of CloudWatch Logs" in refusal(d.cloudwatch_logs(), data, record)


def test_a_wrong_message_makes_the_record_wrong(record):
    assert "not JSON" in refusal(d.cloudwatch_logs(d.json(Order)), logs('{"id": 1}', SECRET), record)


def test_what_messages_decompress_is_bounded_together(record, monkeypatch):
    monkeypatch.setattr("efo.deserializers.many.MAX_SIZE", 1000)
    packed = [base64.b64encode(standard_gzip.compress(bytes(600))).decode()] * 2

    def inner(one):
        return compressed.inflated(one, base64.b64decode(one.data), 10_000, 31)

    assert len(d.cloudwatch_logs(inner)(record(logs(*packed[:1])))) == 1
    assert "together" in refusal(d.cloudwatch_logs(inner), logs(*packed), record)


# --- DynamoDB --------------------------------------------------------------------------------------------------------


def change(new=None, old=None, **fields):
    image = {"Keys": {"id": {"N": "7"}}, "ApproximateCreationDateTime": 1767225600123, "SizeBytes": 9}
    image |= {name: value for name, value in (("NewImage", new), ("OldImage", old)) if value is not None}
    event = {"eventID": "e", "eventName": "MODIFY", "tableName": "orders", "userIdentity": None, "dynamodb": image}
    return json.dumps(event | fields).encode()


def test_an_item_is_values_of_python(record):
    image = {
        "s": {"S": "x"},
        "n": {"N": "-7"},
        "d": {"N": "1.50"},
        "b": {"B": base64.b64encode(b"\0").decode()},
        "t": {"BOOL": True},
        "z": {"NULL": True},
        "l": {"L": [{"N": "1"}, {"M": {"a": {"S": "b"}}}]},
        "ss": {"SS": ["a", "b"]},
        "ns": {"NS": ["1", "2.5"]},
    }
    found = d.dynamodb()(record(change(new=image)))
    assert found.new == {
        "s": "x",
        "n": -7,
        "d": Decimal("1.50"),
        "b": b"\0",
        "t": True,
        "z": None,
        "l": [1, {"a": "b"}],
        "ss": {"a", "b"},
        "ns": {1, Decimal("2.5")},
    }
    assert (found.old, found.keys, found.table, found.event_name) == (None, {"id": 7}, "orders", "MODIFY")
    assert found.at == datetime(2026, 1, 1, 0, 0, 0, 123000, UTC)


def test_an_item_fits_a_type(record):
    read = d.dynamodb(Order)
    found = read(record(change(new={"id": {"N": "1"}, "price": {"N": "2.5"}}, old={"id": {"N": "1"}})))
    assert (found.new, found.old) == (Order(1, 2.5), Order(1))
    assert "Order" in refusal(read, change(new={"id": {"S": SECRET}}), record)


def test_an_expired_item_and_microseconds(record):
    identity = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    data = json.loads(change(userIdentity=identity))
    data["dynamodb"] |= {
        "ApproximateCreationDateTime": 1767225600123456,
        "ApproximateCreationDateTimePrecision": "MICROSECOND",
    }
    found = d.dynamodb()(record(json.dumps(data).encode()))
    assert found.user_identity == identity
    assert found.at == datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    "value",
    [
        {"X": SECRET},
        {"N": SECRET},
        {"N": "1" * 100},
        {"N": "1e99999999999"},
        {"N": "NaN"},
        {"B": SECRET + "!"},
        {"S": 1},
        SECRET,
        {"S": "a", "N": "1"},
        {"NS": [str(i * (2**61 - 1)) for i in range(1000)]},
    ],
)
def test_what_is_no_change_of_dynamodb_is_refused(record, value):
    refusal(d.dynamodb(), change(new={"a": value}), record)
    refusal(d.dynamodb(), b"{}", record)


def test_a_deep_item_is_refused_and_no_more(record):
    data = change(new={"a": "deep"}).replace(b'"deep"', b'{"L":[' * 5000 + b"]}" * 5000)
    refusal(d.dynamodb(), data, record)


# --- DMS -------------------------------------------------------------------------------------------------------------


def row(data=None, **more):
    metadata = {"record-type": "data", "operation": "update", "schema-name": "s", "table-name": "t"}
    found = {"metadata": metadata | more.pop("metadata", {}), **more}
    return json.dumps(found if data is None else found | {"data": data}).encode() + b"\n"


def test_a_row_has_its_operation_and_what_it_was_before(record):
    found = d.dms(d.json(Order))(record(row({"id": 1}, **{"before-image": {"id": 2}})))
    assert (found.operation, found.schema, found.table) == ("update", "s", "t")
    assert (found.data, found.before, found.is_control) == (Order(1), Order(2), False)


def test_a_control_record_has_no_row(record):
    found = d.dms(d.json(Order))(record(row(metadata={"record-type": "control", "operation": "create-table"})))
    assert (found.is_control, found.data, found.operation) == (True, None, "create-table")


@pytest.mark.parametrize("data", [b"{}", b"1", row({"id": 1}, metadata={"record-type": SECRET}), row({"id": SECRET})])
def test_what_is_no_row_is_refused(record, data):
    refusal(d.dms(d.json(Order)), data, record)


# --- in a handler, and as layers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "data", "values"),
    [
        ((), b"x", [b"x"]),
        (("gzip_or_plain", "json_lines"), b"1\n\n 2 \r\n", [b"1", b"2"]),
        (("json_array",), b'[1, {"a": [2]}, "x"]', [b"1", b'{"a": [2]}', b'"x"']),
        (("gzip", "cloudwatch_logs"), standard_gzip.compress(logs("a", "b")), [b"a", b"b"]),
        (("gzip", "cloudwatch_logs"), standard_gzip.compress(logs("a", kind="CONTROL_MESSAGE")), []),
        (("cloudwatch_logs", "json_lines"), logs("1\n2", "3"), [b"1", b"2", b"3"]),
    ],
)
def test_layers_are_taken_off_the_outermost_first(record, layers, data, values):
    assert list(unwrapping(layers)(record(data))) == values


def test_layers_are_bounded(record):
    assert "more than" in refusal(unwrapping(["json_lines"]), b"1\n" * 100_001, record)
    assert "more than" in refusal(unwrapping(["json_array"]), b"[1" + b",1" * 100_001 + b"]", record)
