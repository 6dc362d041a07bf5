from __future__ import annotations

import json

import msgspec
import pytest

from proofs.peers.lines import Output


def output_of(*lines):
    output = Output()
    for line in lines:
        output.add_line(json.dumps(line).encode())
    return output


def counts(t, records, source="", latencies=""):
    return {"t": t, "records": records, "bytes": records * 10, "source": source, "latencies": latencies}


def test_a_rate_is_from_the_first_to_the_last_line_in_the_window():
    output = output_of(counts(0, 0), counts(1, 100), counts(2, 300), counts(3, 500), counts(4, 9000))
    assert output.records_per_second(0.5, 3.5) == 200


def test_the_rates_of_several_sources_add_up():
    output = output_of(counts(1, 10, "a"), counts(1.5, 1000, "b"), counts(2, 30, "a"), counts(2.5, 1100, "b"))
    assert output.records_per_second(0, 3) == 20 + 100
    assert output.records == 30 + 1100


def test_a_source_with_a_single_line_in_the_window_has_no_rate():
    assert output_of(counts(1, 10, "a"), counts(1, 5, "b"), counts(2, 20, "a")).records_per_second(0, 3) == 10
    with pytest.raises(ValueError, match="no source printed two lines"):
        output_of(counts(1, 10)).records_per_second(0, 3)


def test_the_first_record_is_in_the_first_line_that_counts_one():
    output = output_of(counts(1, 0), counts(2, 1), counts(3, 5))
    assert output.first_at == 2
    assert output.reached_at(1) == 2
    assert output.reached_at(5) == 3
    assert output.reached_at(6) is None


def test_the_expected_records_may_come_from_several_sources():
    output = output_of(counts(1, 1, "a"), counts(2, 1, "b"), counts(3, 1, "c"))
    assert [output.reached_at(number) for number in (1, 2, 3)] == [1, 2, 3]


def test_latencies_have_the_time_of_their_line():
    assert output_of(counts(1, 2, latencies="150 2000")).latencies == [(1, 150), (1, 2000)]


def test_seen_records_are_kept_in_order():
    output = output_of({"seen": "key-1:0 key-2:1"}, {"seen": "a:b:7"})
    assert output.seen == [("key-1", 0), ("key-2", 1), ("a:b", 7)]


def test_a_clean_stop_is_reported():
    assert output_of(counts(1, 2)).stopped is None
    assert output_of({"stopped": 5.5, "records": 2}).stopped == 5.5


@pytest.mark.parametrize("text", [b"INFO started", b'{"records": 1}', b'{"unknown": 1}', b'{"seen": "key-1"}'])
def test_another_line_is_an_error(text):
    with pytest.raises((msgspec.DecodeError, ValueError)):
        Output().add_line(text)
