"""The native step gives the answers of the Python step: some hundred made inputs, and what Hypothesis makes of them."""

import base64
import json
from itertools import islice

import pytest
from hypothesis import given, settings, strategies as st

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
    """A step that adds a millisecond to each arrival time."""

    def event(self, *arguments):
        columns = super().event(*arguments)
        return columns and (columns[0], [at + 0.001 for at in columns[1]], *columns[2:])


@needs_native
def test_a_step_that_reads_something_else_is_found():
    inputs = [data for data in islice(cases(0), 300) if data[0] == EVENT]
    with pytest.raises(AssertionError, match=r"Python: .* -- native: "):
        [compare(data, WrongStep(DECODER.step)) for data in inputs]


def test_the_parser_forbids_unsafe_code_and_no_file_has_any():
    assert "#![forbid(unsafe_code)]" in (ROOT / "native/parser/src/lib.rs").read_text()
    assert sum(unsafe_blocks().values()) == 0
