"""Avro that would end the process, or keep it busy for long, is refused before fastavro reads it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from decimal import Decimal

import fastavro
import pytest
from hypothesis import given, settings, strategies as st

import efo
from efo.deserializers import avro, by_schema, confluent, schemas
from efo.deserializers.avro_bounds import AvroBounds

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
TREE = {"type": "record", "name": "Node", "fields": [{"name": "all", "type": {"type": "array", "items": "Node"}}]}
NAMES = {"type": "record", "name": "Node", "fields": [{"name": "all", "type": {"type": "map", "values": "Node"}}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}


def list_of(items):
    return {"type": "array", "items": items}


def record_of(**fields):
    return {
        "type": "record",
        "name": "R" + str(len(str(fields))),
        "fields": [{"name": n, "type": t} for n, t in fields.items()],
    }


def number(value):
    value = (value << 1) ^ (value >> 63)
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def written(value, schema):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def reason_of(read, data, record):
    with pytest.raises(efo.errors.DeserializationError) as caught:
        read(record(data))
    return caught.value.reason


DEEP = [
    (NODE, lambda levels: b"\x02" * levels + b"\x00"),
    (TREE, lambda levels: b"\x02" * levels + b"\x00" * (levels + 1)),
    (NAMES, lambda levels: b"\x02\x02x" * levels + b"\x00" * (levels + 1)),
    (["null", NODE], lambda levels: b"\x02" * (levels + 1) + b"\x00"),
]


@pytest.mark.parametrize(("schema", "data"), DEEP, ids=["union", "array", "map", "top"])
def test_deep_values_are_refused_and_others_are_read(schema, data, record):
    read = avro(schema)
    assert read(record(data(90))) == fastavro.schemaless_reader(io.BytesIO(data(90)), schema, None)
    for levels in (250, 10_000, 200_000):
        assert reason_of(read, data(levels), record) == "Avro nested in more than 200 levels"


def test_a_deep_value_ends_no_process(tmp_path):
    program = (
        "import efo, threading; from efo.deserializers import avro\n"
        f"read = avro({NODE!r})\n"
        "threading.stack_size(1024 * 1024)\n"
        "def go():\n"
        "    for levels in (199, 100_000):\n"
        "        try: read(efo.Record('1', 0.0, b'\\x02' * levels + b'\\x00', 'k')); print('read')\n"
        "        except efo.errors.DeserializationError: print('refused')\n"
        "thread = threading.Thread(target=go); thread.start(); thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, ["read", "refused"])


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "F", "size": 0}, record_of(), record_of(a="null", b=record_of())],
    ids=["null", "fixed", "record", "records"],
)
def test_items_without_bytes_are_counted(items, record):
    read = avro(list_of(items))
    assert len(read(record(number(1000) + b"\x00"))) == 1000
    for count in (10**6, 2**60, -(2**60)):
        size = number(0) if count < 0 else b""
        assert "more than 100,000 values" in reason_of(read, number(count) + size + b"\x00", record)
    assert "values" in reason_of(read, b"\x02" * 1_000_000 + b"\x00", record)


def test_a_schema_whose_values_double_at_each_level_is_bounded(record):
    schema = "null"
    for level in range(60):
        inner = schema if isinstance(schema, str) else schema["name"]
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": inner}]
        schema = {"type": "record", "name": f"L{level}", "fields": fields}
    assert "values" in reason_of(avro(schema), b"", record)


def test_a_schema_without_an_end_is_refused(record):
    assert "levels" in reason_of(avro(record_of_itself()), b"", record)


def record_of_itself():
    return {"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}


def test_large_values_are_counted_and_may_be_allowed(record):
    data = number(3000) + bytes(3000) + b"\x00"
    schema = list_of(list_of("long"))
    assert "2,000 values" in reason_of(avro(schema, max_values=2000), data, record)
    assert avro(schema, max_values=4000)(record(data)) == [[]] * 3000
    assert len(avro(list_of("long"), max_values=1000)(record(data))) == 3000  # numbers count as a quarter
    with pytest.raises(efo.errors.ConfigurationError, match="max_values=0"):
        avro(schema, max_values=0)


def test_fields_that_only_the_reader_has_count_too(record):
    writer = list_of({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    extra = [{"name": f"f{n}", "type": "int", "default": 1} for n in range(100)]
    reader = list_of({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, *extra]})
    data = number(1000) + bytes(1000) + b"\x00"
    assert len(avro(writer, max_values=5000)(record(data))) == 1000
    assert "5,000 values" in reason_of(avro(writer, reader_schema=reader, max_values=5000), data, record)


@pytest.mark.parametrize("schema", [DECIMAL, record_of(price=["null", DECIMAL]), list_of(DECIMAL)])
def test_a_long_decimal_is_refused(schema, record):
    value = Decimal("12.34")
    inner = {"price": value} if isinstance(schema, dict) and schema["type"] == "record" else value
    inner = [value] if schema == list_of(DECIMAL) else inner
    assert avro(schema)(record(written(inner, schema))) == inner
    prefix = {"bytes": b"", "record": b"\x02", "array": b"\x02"}[schema["type"]]
    end = b"\x00" if schema["type"] == "array" else b""
    data = prefix + number(900_000) + b"\x7f" * 900_000 + end
    assert reason_of(avro(schema), data, record) == "Avro with a decimal of more than 512 bytes"


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (NODE, b"\x03" * 300),
        (NODE, b"\x04" * 300),
        (TREE, b"\x02" * 90 + b"\x00" * 90),
        (list_of("null"), b"\xff" * 20),
        (list_of("null"), b""),
        (record_of(a=list_of("null"), b="string"), b"\x00\x01"),
        (record_of(a=list_of("null"), b="bytes"), b"\x00" + number(2**60)),
        (record_of(a=list_of("null"), b={"type": "fixed", "name": "F", "size": 9}), b"\x00x"),
        (record_of(a=list_of("null"), b=list_of("long")), b"\x00" + number(100) + b"\xff" * 120),
        (record_of(a=list_of("null"), b={"type": "enum", "name": "E", "symbols": ["A"]}), b"\x00\xff"),
    ],
)
def test_damaged_data_is_refused_on_the_way(schema, data, record):
    assert "not Avro that fits the schema" in reason_of(avro(schema), data, record)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "fixed", "name": "F", "size": 9999, "logicalType": "decimal", "precision": 9}, "more than 512 bytes"),
        ({"type": "fixed", "name": "F", "size": "9"}, "not an Avro schema"),
        ({"type": "fixed", "name": "F", "size": -1}, "not an Avro schema"),
        ({**DECIMAL, "precision": -1}, "not an Avro schema"),
        (json.dumps(list_of("int")) + " " * 2**20, "more than 1,048,576 characters"),
        ('{"type": "array", "items": ' * 300 + '"int"' + "}" * 300, "nested in more than 200 levels"),
        ('{"type": "array", "items": ' * 90_000 + '"int"' + "}" * 90_000, "1,048,576 characters"),
        ('{"type":"array","items":' * 30_000 + '"int"' + "}" * 30_000, "RecursionError"),
        ({"type": "record", "name": "N", "fields": [{"name": "n", "type": object()}]}, "not an Avro schema"),
    ],
)
def test_a_schema_that_cannot_be_bounded_is_refused_when_the_deserializer_is_made(schema, message):
    with pytest.raises(efo.errors.ConfigurationError, match=message):
        avro(schema)


def test_a_schema_that_claims_to_be_parsed_is_parsed(record):
    parsed = fastavro.parse_schema(record_of(a="int", b=NODE))
    assert avro(parsed)(record(b"\x02\x00")) == {"a": 1, "b": {"next": None}}
    claimed = {**record_of(a="int"), "__fastavro_parsed": True, "__named_schemas": {}}
    claimed["fields"][0]["type"] = {"type": "record", "fields": []}  # no name, which parsing finds
    with pytest.raises(efo.errors.ConfigurationError, match="not an Avro schema"):
        avro(claimed)


# --- against fastavro ---

_SCALARS = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


def _schemas():
    names = iter(range(10**6))

    def record(fields):
        return {
            "type": "record",
            "name": f"R{next(names)}",
            "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(fields)],
        }

    return st.recursive(
        _SCALARS,
        lambda inner: (
            st.builds(list_of, inner)
            | st.builds(lambda values: {"type": "map", "values": values}, inner)
            | st.builds(record, st.lists(inner, max_size=4))
            | st.builds(lambda each: ["null", each], st.builds(record, st.lists(inner, max_size=3)))
        ),
        max_leaves=8,
    )


@given(schema=_schemas(), data=st.data())
@settings(deadline=None, derandomize=True, database=None, max_examples=300)
def test_what_fastavro_writes_has_no_problem_and_each_value_is_counted(schema, data):
    parsed = fastavro.parse_schema(schema)
    value = data.draw(_values(schema))
    encoded = written(value, schema)
    named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
    bounds = AvroBounds(parsed, named, 10**6)
    bounds.small = -1  # look at all of it
    assert bounds.problem(encoded) is None
    assert bounds.problem(encoded + b"x") is None  # what follows is found when the value is read
    if encoded:
        assert bounds.problem(encoded[:-1]) is not None


def _values(schema):
    if isinstance(schema, list):
        return st.one_of([_values(each) for each in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return st.lists(_values(schema["items"]), max_size=40)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), _values(schema["values"]), max_size=4)
    if kind == "record":
        return st.fixed_dictionaries({each["name"]: _values(each["type"]) for each in schema["fields"]})
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.just(0.5),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=20),
        "string": st.text(max_size=20),
    }[kind]


@given(data=st.binary(max_size=300))
@settings(deadline=None, derandomize=True, database=None, max_examples=300)
@pytest.mark.parametrize("schema", [NODE, TREE, NAMES, list_of("null"), record_of(a=list_of(record_of()), b="long")])
def test_whatever_has_no_problem_fastavro_may_read(schema, data):
    read = avro(schema, max_values=1000)
    try:
        value = read(efo.Record("1", 0.0, data, "k"))
    except efo.errors.DeserializationError:
        return
    assert str(value)


# --- schemas that records choose ---


def test_a_schema_of_a_registry_that_cannot_be_bounded_is_a_failure_of_the_record(record):
    read = confluent(by_schema({1: json.dumps(record_of_itself()), 2: "[" * 10**6, 3: " " * 2**20 + '"int"'}, avro))
    for schema_id, reason in ((1, "levels"), (2, "schema 2 cannot be used"), (3, "schema 3 cannot be used")):
        assert reason in reason_of(read, b"\x00" + schema_id.to_bytes(4) + b"\x02", record)


def test_the_schemas_that_are_kept_are_bounded_together(record, monkeypatch):
    monkeypatch.setattr(schemas, "MAX_KEPT_SIZE", 1000)
    made = []

    def make(schema):
        made.append(schema.strip())
        return avro(schema)

    read = confluent(by_schema(dict.fromkeys(range(1, 4), '"long"' + " " * 400) | {4: '"int"'}, make))
    for schema_id in (1, 2, 1, 3, 1, 4, 4):
        assert read(record(b"\x00" + schema_id.to_bytes(4) + b"\x02")) == 1
    assert len(made) == 5  # the third takes the place of the first
