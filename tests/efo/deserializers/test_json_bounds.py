"""JSON that would keep a decoder busy for seconds is refused before the decoder sees it, and ordinary JSON is not."""

from __future__ import annotations

import dataclasses
import uuid
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given, settings, strategies as st

import efo
from efo import deserializers
from efo.deserializers.json_bounds import MAX_EXPONENTS, Facts, JsonBounds, facts_of
from efo.deserializers.pydantic_data import facts_of as facts_of_pydantic

MODULUS = 2**61 - 1
"""Python's hashes of numbers that are equal modulo it are the same."""
ALIKE = [number * MODULUS for number in range(600)]
DIFFERENT = [number * 7919**6 for number in range(600)]


class Leaf(pydantic.BaseModel):
    child: Leaf | Branch | None = None


class Branch(pydantic.BaseModel):
    child: Leaf | Branch | None = None
    x: int = 0


class Chain(pydantic.BaseModel):
    next: Chain | None = None


class Key(pydantic.BaseModel, frozen=True):
    x: int = 0


class Defaults(msgspec.Struct):
    a: int = 0
    b: int = 0


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int


def reason_of(read, data, record):
    with pytest.raises(efo.errors.DeserializationError) as caught:
        read(record(data))
    return caught.value.reason


def nested(count, inner=b"1"):
    return b'{"child":' * count + inner + b"}" * count


# --- how many values ---


@pytest.mark.parametrize("make", [deserializers.json, lambda **kw: deserializers.pydantic(Any, **kw)])
@pytest.mark.parametrize("unit", [b"[],", b"{},", b'{"a":[]},'])
def test_more_values_than_allowed_are_refused_and_as_many_are_not(make, unit, record):
    data = b"[" + unit * 999 + b"0]"
    assert len(make(max_values=5000)(record(data))) == 1000
    assert "JSON of more than 500 values: set max_values" in reason_of(make(max_values=500), data, record)


def test_texts_and_numbers_count_as_a_quarter(record):
    data = b"[" + b'"x",' * 2000 + b"0]"
    assert len(deserializers.json(max_values=510)(record(data))) == 2001
    assert "500 values" in reason_of(deserializers.json(max_values=500), data, record)


@pytest.mark.parametrize(
    "text",
    [b"[,{," * 1000, rb"\",[" * 1000, rb"\\" * 1000, b'x","' + rb"\\\"[" * 1000, b"," * 3_000_000],
    ids=["commas", "quotes", "backslashes", "two texts", "several pieces"],
)
def test_what_is_within_a_text_does_not_count(text, record):
    read = deserializers.json(max_values=10)
    assert read(record(b'["' + text + b'"]')) == msgspec.json.decode(b'["' + text + b'"]')


def test_fields_that_are_left_out_count_too(record):
    kind = msgspec.defstruct("Wide", [(f"field_{number}", int, 0) for number in range(200)])
    data = b"[" + b"{}," * 99 + b"{}]"
    assert len(deserializers.json(list[Defaults], max_values=200)(record(data))) == 100
    assert "200 values" in reason_of(deserializers.json(list[kind], max_values=200), data, record)


@given(
    value=st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
@settings(deadline=None, derandomize=True, database=None, max_examples=100)
def test_values_are_not_counted_more_than_they_are(value):
    def values_of(value):
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        return (5 if isinstance(value, dict | list) else 1) + sum(map(values_of, inner))

    data = msgspec.json.encode(value)
    limit = -(-values_of(value) // 4)
    assert JsonBounds(Facts(), limit, is_msgspec=True).problem(data) is None


@pytest.mark.parametrize("max_values", [0, -1, "5", True])
def test_a_limit_that_is_none_is_refused_at_the_call(max_values):
    with pytest.raises(efo.errors.ConfigurationError, match="max_values="):
        deserializers.json(max_values=max_values)
    with pytest.raises(efo.errors.ConfigurationError, match="max_values="):
        deserializers.pydantic(int, max_values=max_values)


# --- numbers that are slow to read ---


@pytest.mark.parametrize("number", [b"1e308", b"-4.9E-324", b"1e+0000300"])
def test_many_numbers_with_large_exponents_are_refused(number, record):
    reason = reason_of(deserializers.json(), b"[" + (number + b",") * (MAX_EXPONENTS + 1) + b"0]", record)
    assert reason == "JSON with more than 2,000 numbers whose exponents have three digits"


@pytest.mark.parametrize("item", [b"1e-005", b"1.5e22", b'"deadbeef1e308"', b'"1e308"'])
def test_other_numbers_and_texts_are_not(item, record):
    data = b"[" + (item + b",") * (MAX_EXPONENTS * 2) + b"0]"
    assert len(deserializers.json()(record(data))) == MAX_EXPONENTS * 2 + 1


# --- keys of one hash ---


def as_keys(numbers):
    return msgspec.json.encode({str(number): 1 for number in numbers})


def as_list(numbers):
    return b"[" + b",".join(b"%d" % number for number in numbers) + b"]"


def as_uuids(numbers):
    return msgspec.json.encode([str(uuid.UUID(int=number)) for number in numbers])


def as_pairs(numbers):
    return b"[" + b",".join(b"[0,%d]" % number for number in numbers) + b"]"


KINDS = [
    (dict[int, int], as_keys),
    (dict[Decimal, int], as_keys),
    (set[int], as_list),
    (frozenset[int], as_list),
    (set[Decimal], as_list),
    (set[uuid.UUID], as_uuids),
    (set[tuple[int, int]], as_pairs),
]


@pytest.mark.parametrize("make", [deserializers.json, deserializers.pydantic], ids=["json", "pydantic"])
@pytest.mark.parametrize(("kind", "encode"), KINDS, ids=[str(kind) for kind, _ in KINDS])
def test_keys_whose_hashes_are_equal_are_refused_and_others_are_not(make, kind, encode, record):
    assert len(make(kind)(record(encode(DIFFERENT)))) == len(DIFFERENT)
    reason = reason_of(make(kind), encode(ALIKE), record)
    assert reason == "more than 20 keys, or members of a set, with the same hash"


@pytest.mark.parametrize("make", [deserializers.json, deserializers.pydantic], ids=["json", "pydantic"])
def test_they_are_found_inside_other_values_and_in_every_form_of_a_number(make, record):
    assert make(dict[str, list[dict[int, int]]])(record(b'{"a":[{"1":1}]}')) == {"a": [{1: 1}]}
    inner = b'{"a":[' + as_keys(ALIKE) + b"]}"
    assert "the same hash" in reason_of(make(dict[str, list[dict[int, int]]]), inner, record)
    ones = [b'"%de%d"' % (pow(10, -exponent, MODULUS), exponent) for exponent in range(600)]  # each is 1 modulo it
    assert "the same hash" in reason_of(make(set[Decimal]), b"[" + b",".join(ones) + b"]", record)


@pytest.mark.parametrize("make", [deserializers.json, deserializers.pydantic], ids=["json", "pydantic"])
def test_sets_of_texts_and_lists_of_the_same_numbers_have_no_such_limit(make, record):
    texts = msgspec.json.encode([str(number) for number in ALIKE])
    assert len(make(set[str])(record(texts))) == len(ALIKE)
    assert len(make(list[int])(record(as_list(ALIKE)))) == len(ALIKE)
    same = as_list([2**61] * 1000)
    assert make(set[int])(record(same)) == {2**61}


@pytest.mark.parametrize(("make", "kind"), [(deserializers.json, set[Point]), (deserializers.pydantic, set[Key])])
def test_sets_of_objects_have_a_limit_of_their_own(make, kind, record):
    objects = [{"x": number, "y": 0} for number in range(600)]
    assert len(make(kind)(record(msgspec.json.encode(objects[:400])))) == 400
    padded = msgspec.json.encode(objects).replace(b":", b": " + b" " * 30)
    assert "the same hash" in reason_of(make(kind), padded, record)


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (int, Facts()),
        (dict[str, int], Facts()),
        (set[str], Facts()),
        (dict, Facts()),
        (set, Facts(hashes=True)),
        (dict[str, dict[int, str]], Facts(hashes=True)),
        (frozenset[tuple[str, ...]], Facts()),
        (set[tuple[float, float]], Facts(hashes=True)),
        (set[Point], Facts(hashes=True, hashes_objects=True)),
        (list[Defaults], Facts(fields=2)),
    ],
)
def test_facts_of_types_of_msgspec(kind, facts):
    assert facts_of(kind) == facts


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        (int, Facts()),
        (dict[str, int], Facts()),
        (set[uuid.UUID], Facts(hashes=True)),
        (list[dict[int, str]], Facts(hashes=True)),
        (set[Key], Facts(fields=1, hashes=True, hashes_objects=True)),
        (Leaf, Facts(fields=2, objects=2)),
        (Chain, Facts(fields=1)),
        (Chain | Key, Facts(fields=1, objects=2)),
        (list[int] | list[str], Facts()),
    ],
)
def test_facts_of_types_of_pydantic(kind, facts):
    assert facts_of_pydantic(pydantic.TypeAdapter(kind).core_schema) == facts


# --- pydantic alone ---


def test_a_model_may_name_classes_that_are_defined_later(record):
    class Now(pydantic.BaseModel):
        soon: Soon | None = None

    read = deserializers.pydantic(Now)

    class Soon(pydantic.BaseModel):
        id: int

    Now.model_rebuild()
    assert read(record(b'{"soon": {"id": 1}}')) == Now(soon=Soon(id=1))


def test_unions_within_unions_are_refused_before_they_take_ages(record):
    read = deserializers.pydantic(Leaf)
    assert read(record(nested(5, b"null"))).child is not None
    assert "model_type" in reason_of(read, nested(2), record)
    for deep in (20, 60, 150):
        assert "alternatives would be tried" in reason_of(read, nested(deep), record)
        assert "alternatives would be tried" in reason_of(read, nested(deep, b"null"), record)


def test_a_type_that_contains_itself_without_a_choice_may_be_deep(record):
    read = deserializers.pydantic(Chain)
    assert read(record(b'{"next":' * 150 + b"null" + b"}" * 150)).next is not None
    assert (
        reason_of(read, b'{"next":' * 5000 + b"null" + b"}" * 5000, record) == "not JSON that fits Chain: json_invalid"
    )


def test_thousands_of_errors_are_counted_and_not_made(record):
    reason = reason_of(deserializers.pydantic(list[int]), b"[" + b'"x",' * 5000 + b"1]", record)
    assert reason == "not JSON that fits list: 5,000 errors"
