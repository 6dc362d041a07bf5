"""The Kafka sink has a faster function for headers. It returns the same as the mapping for every record."""

from __future__ import annotations

from hypothesis import given, strategies as st

from efo.model import Record
from efo_service.relay.kafka.producer import fast_headers
from efo_service.relay.mapping import RecordMapping, from_tags

TEXT = st.text(max_size=20)
RECORDS = st.builds(
    Record,
    sequence_number=st.integers(0, 10**60).map(str),
    approximate_arrival_timestamp=st.floats(0, 2e9),
    data=st.binary(max_size=10),
    partition_key=TEXT,
    encryption_type=st.sampled_from([None, "NONE", "KMS"]),
    sub_sequence_number=st.integers(0, 300),
    explicit_hash_key=st.none() | st.integers(0, 2**128 - 1).map(str),
    tags=st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=2).map(tuple),
)


@given(RECORDS, st.booleans())
def test_fast_headers_equal_those_of_the_mapping(record, traced):
    mapping = RecordMapping("orders", "shardId-000000000000", from_tags if traced else None)
    made = [
        (name, value.encode() if isinstance(value, str) else value) for name, value in fast_headers(mapping)(record)
    ]
    assert made == mapping.headers(record)
