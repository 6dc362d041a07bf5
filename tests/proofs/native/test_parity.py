"""The native step gives the answers of the Python step: some hundred made inputs, and what Hypothesis makes of them."""

import base64
import json
from itertools import islice

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Struct
from msgspec.structs import replace

from efo.model import Batch, HashKeyRange, Record
from efo.protocol.aggregate_message import MAX_CHUNK, MAX_FIELDS
from efo.protocol.aggregation import AGGREGATE_KEY, MAGIC, AggregateEntry, AggregateMode, HashRangeFilter, aggregate
from efo.protocol.deaggregation import expand_all
from efo.protocol.native import DECODER
from proofs.native.cases import cases
from proofs.native.compare import AGGREGATE, EVENT, CountedStep, compare
from proofs.native.parity import seeds, unsafe_blocks
from proofs.paths import ROOT

needs_native = pytest.mark.skipif(DECODER.step is None, reason=f"{DECODER.detail} (make native)")


@needs_native
def test_both_steps_read_made_and_damaged_inputs_in_the_same_way():
    counted = CountedStep(DECODER.step)
    for data in islice(cases(0), 900):
        compare(data, counted)
    assert counted.asked > counted.read > 100


@needs_native
def test_both_steps_read_the_seeds_of_the_fuzz_targets_in_the_same_way():
    for data in seeds():
        compare(data, DECODER.step)


TEXT = st.text(max_size=300)
RECORD = st.fixed_dictionaries(
    {
        "SequenceNumber": st.integers(0, 10**130).map(str),
        "ApproximateArrivalTimestamp": st.floats(allow_nan=False) | st.integers() | st.none(),
        "Data": st.binary(max_size=50).map(lambda data: base64.b64encode(data).decode()) | TEXT,
    },
    optional={"PartitionKey": TEXT | st.none(), "EncryptionType": TEXT | st.none(), "New": TEXT | st.booleans()},
)


@needs_native
@settings(max_examples=100, deadline=None)
@given(st.lists(RECORD, max_size=4), st.booleans())
def test_both_steps_read_any_records_in_the_same_way(records, ascii_only):
    body = {"Records": records, "MillisBehindLatest": 0, "ContinuationSequenceNumber": "1"}
    text = json.dumps(body, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    compare(bytes([EVENT, 0]) + text, DECODER.step)


@needs_native
@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 255))
def test_both_steps_read_any_bytes_in_the_same_way(data, choice):
    compare(bytes([EVENT, choice]) + data, DECODER.step)
    compare(bytes([AGGREGATE, choice]) + data, DECODER.step)


class WrongStep(CountedStep):
    """A step whose records have another arrival time."""

    def event(self, *arguments):
        read = super().event(*arguments)
        return read and (tuple(replace(one, approximate_arrival_timestamp=0.5) for one in read[0]), read[1])


class WrongColumns(CountedStep):
    """A step whose columns have another encryption type."""

    def packed(self, *arguments):
        packed = super().packed(*arguments)
        return packed and (*packed[:-2], "other", packed[-1])


@needs_native
@pytest.mark.parametrize("wrong", [WrongStep, WrongColumns])
def test_a_step_that_reads_something_else_is_found(wrong):
    inputs = [data for data in islice(cases(0), 300) if data[0] == EVENT]
    with pytest.raises(AssertionError, match=r"Python: .* -- native: "):
        [compare(data, wrong(DECODER.step)) for data in inputs]


def test_the_parser_forbids_unsafe_code_and_two_files_of_the_binding_have_all():
    assert "#![forbid(unsafe_code)]" in (ROOT / "native/parser/src/lib.rs").read_text()
    found = {path: count for path, count in unsafe_blocks().items() if count}
    assert found == {"native/src/lanes.rs": 1, "native/src/record.rs": 4}


def test_what_cargo_has_built_is_no_code_of_ours(tmp_path):
    for path in ("native/src/one.rs", "native/target/debug/build/of-a-crate/out/host.rs"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("fn f() { unsafe { g() } }")
    assert unsafe_blocks(tmp_path / "native") == {"native/src/one.rs": 1}


def test_each_unsafe_block_says_why_it_is_sound():
    for path, count in unsafe_blocks().items():
        assert (ROOT / path).read_text().count("// SAFETY: ") == count, path


def made_aggregate(count, key="k", size=40):
    """Return a Kinesis record with an aggregate of so many user records."""
    entries = [AggregateEntry(key, bytes([number % 256]) * size) for number in range(count)]
    return Record("17", 1.5, aggregate(entries), AGGREGATE_KEY)


@needs_native
def test_a_group_of_aggregates_is_read_as_each_of_them():
    good = [made_aggregate(count, size=count) for count in (1, 2, 3, 30, 60, 90, 120, 150, 200)]
    damaged = [replace(one, data=one.data[:-1] + bytes([one.data[-1] ^ 1])) for one in good]
    plain = Record("18", 2.5, b"plain", "k")
    elsewhere = replace(good[2], partition_key="other")
    for records in (good, good[:2], [good[0], plain, *damaged[:3], elsewhere], [good[8]] * 20, damaged, [plain]):
        for shard in (None, HashKeyRange("0", "1")):
            for mode in AggregateMode:
                kept = HashRangeFilter(shard, mode)
                for most in (MAX_FIELDS, 300, 100):
                    answers = [users_of(records, kept, most, step) for step in (None, DECODER.step)]
                    assert answers[0] == answers[1]


@needs_native
def test_at_most_so_many_user_records_are_read_at_a_time():
    records = (made_aggregate(60), made_aggregate(41), replace(made_aggregate(1), data=MAGIC), made_aggregate(100))
    found = [DECODER.step.aggregates(records[at:], 100, None) for at in range(4)]
    assert [[users and len(users) for users in each] for each in found] == [[60], [41, None], [None, 100], [100]]
    assert DECODER.step.aggregates((made_aggregate(101),), 100, None) == [None]


def users_of(records, kept, most, step):
    found = []
    for record, part in expand_all(records, kept, most, step):
        if part is not None:
            found.append((record, part.filtered, part.problem))
            found += part.records
    return found


@needs_native
def test_a_large_aggregate_is_left_to_python_which_yields_between_its_parts():
    record = made_aggregate(3, size=MAX_CHUNK // 2)
    counted = CountedStep(DECODER.step)
    parts = [part for _, part in expand_all([record], HashRangeFilter(None), step=counted)]
    assert (counted.asked, None in parts) == (0, True)
    assert sum(len(part.records) for part in parts if part) == 3


@needs_native
def test_data_is_added_up_unless_a_record_may_be_an_aggregate():
    plain = Record("1", 1.5, b"\0\1"), Record("2", 1.5, b"")
    assert DECODER.step.plain_size(plain) == 2
    assert DECODER.step.plain_size(()) == 0
    assert DECODER.step.plain_size((*plain, Record("3", 1.5, MAGIC))) is None
    assert DECODER.step.plain_size((*plain, "no record")) is None


class OtherRecord(Struct, frozen=True, gc=False):
    sequence_number: str


@needs_native
@pytest.mark.parametrize("other", [OtherRecord, Batch, str, type("Followed", (Record,), {}, gc=True)])
def test_a_class_of_records_that_is_laid_out_otherwise_is_refused(other):
    with pytest.raises(TypeError, match="laid out in another way"):
        type(DECODER.step)(other)
