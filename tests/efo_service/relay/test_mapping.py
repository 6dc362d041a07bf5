import json
import traceback

import msgspec
import pytest

from efo.errors import ConfigurationError
from efo.model import Record
from efo_service.relay.errors import SinkError
from efo_service.relay.mapping import (
    MAPPING_VERSION,
    Message,
    RecordMapping,
    TraceContext,
    from_tags,
    load_extractor,
)

RECORD = Record("49590338271490256608", 1_700_000_000.123, b"\x00value", "clé")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def changed(**changes: object) -> Record:
    return msgspec.structs.replace(RECORD, **changes)


def headers(record: Record, extract=None) -> dict[str, bytes | None]:
    return dict(RecordMapping("orders", "shardId-000000000007", extract).headers(record))


def test_version_1_of_the_mapping_does_not_change() -> None:
    """Readers rely on it. A change of this expectation needs a new mapping version and an announcement to readers."""
    assert MAPPING_VERSION == 1
    record = changed(
        sub_sequence_number=3,
        explicit_hash_key="340282366920938463463374607431768211455",
        encryption_type="KMS",
        tags=(("colour", "blue"), ("empty", None), ("traceparent", PARENT), ("tracestate", "congo=t61")),
    )
    assert RecordMapping("orders", "shardId-000000000007", from_tags).message(record) == Message(
        key="clé".encode(),
        value=b"\x00value",
        timestamp=1_700_000_000_123,
        headers=[
            ("kinesis.stream", b"orders"),
            ("kinesis.shard", b"shardId-000000000007"),
            ("kinesis.sequence", b"49590338271490256608"),
            ("kinesis.sub_sequence", b"3"),
            ("kinesis.explicit_hash_key", b"340282366920938463463374607431768211455"),
            ("kinesis.encryption_type", b"KMS"),
            ("kinesis.tag.colour", b"blue"),
            ("kinesis.tag.empty", None),
            ("kinesis.tag.traceparent", PARENT.encode()),
            ("kinesis.tag.tracestate", b"congo=t61"),
            ("traceparent", PARENT.encode()),
            ("tracestate", b"congo=t61"),
        ],
    )


def test_a_record_without_a_partition_key_has_the_key_none() -> None:
    assert RecordMapping("orders", "shardId-000000000007").message(changed(partition_key=None)).key is None


def test_a_plain_record_has_four_headers() -> None:
    assert list(headers(RECORD)) == ["kinesis.stream", "kinesis.shard", "kinesis.sequence", "kinesis.sub_sequence"]
    assert headers(changed(encryption_type="NONE")) == headers(RECORD)


@pytest.mark.parametrize("milliseconds", [0, 1, 1_700_000_000_001, 1_700_000_000_999, 4_102_444_800_057])
def test_the_timestamp_keeps_the_milliseconds_of_the_arrival(milliseconds) -> None:
    record = changed(approximate_arrival_timestamp=milliseconds / 1000)
    assert RecordMapping("s", "x").message(record).timestamp == milliseconds


@pytest.mark.parametrize(
    "parent",
    [
        "",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-00",
        "ff" + PARENT[2:],
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        PARENT.replace("b7ad6b7169203331", "0" * 16),
    ],
)
def test_an_invalid_trace_context_adds_no_headers(parent) -> None:
    assert headers(RECORD, lambda _: TraceContext(parent, "a=b")) == headers(RECORD)


def test_tags_without_a_traceparent_have_no_trace_context() -> None:
    assert from_tags(changed(tags=(("tracestate", "a=b"),))) is None
    assert from_tags(RECORD) is None
    assert from_tags(changed(tags=(("traceparent", PARENT),))) == TraceContext(PARENT, None)


@pytest.mark.parametrize(
    ("extract", "kind"),
    [
        (lambda record: json.loads(record.data), "JSONDecodeError"),
        (lambda record: {}[record.partition_key], "KeyError"),
        (lambda record: int(record.data), "ValueError"),
        (lambda record: record.data.decode(), "AttributeError"),
        (lambda record: TraceContext(record.data), "TypeError"),
    ],
)
def test_the_error_of_a_failed_extractor_names_the_record_and_shows_no_data(extract, kind) -> None:
    record = changed(data=b"hunter2", partition_key="hunter2")
    with pytest.raises(SinkError, match=rf"failed at shardId-000000000007 49590338271490256608: {kind};") as caught:
        headers(record, extract)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_an_extractor_is_loaded_by_module_and_function() -> None:
    assert load_extractor("efo_service.relay.mapping:from_tags") is from_tags


@pytest.mark.parametrize(
    "name",
    [
        "",
        "json",
        "json:",
        ":loads",
        ".a:x",
        "no_such_module:f",
        "json:no_such",
        "efo_service.relay.mapping:HEADERS",
        "bad:f",
    ],
)
def test_an_extractor_that_cannot_be_loaded_is_a_configuration_error(name, tmp_path, monkeypatch) -> None:
    (tmp_path / "bad.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match="trace_extractor"):
        load_extractor(name)
