"""The lines of records, and which records match."""

from __future__ import annotations

import json

import pytest

from efo.model import Record
from efo_service.errors import UsageError
from efo_service.operations.record_lines import formatter, matcher

SHARD = "shardId-000000000000"
RECORD = Record("7", 1_700_000_000.123, b'{"id":7}', "customer-7", "KMS")


def line(record=RECORD, form="text", encoding="base64", width=None):
    return formatter(form, "orders", encoding=encoding, width=width)(SHARD, record).decode()


def test_a_line_of_text_has_time_shard_key_and_data():
    assert line() == f'2023-11-14T22:13:20.123Z {SHARD} customer-7 {{"id":7}}\n'


def test_a_record_without_an_arrival_time_has_a_dash():
    assert line(Record("7", 0, b"x", "k")) == f"- {SHARD} k x\n"


def test_a_record_without_a_key_has_a_dash_and_null_in_json():
    record = Record("7", 0, b"x")
    assert line(record) == f"- {SHARD} - x\n"
    assert json.loads(line(record, "json"))["key"] is None
    assert matcher(None, None, "-")(record) is False


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\nb\r\tc", r"a\nb\r\tc"),
        (b"\x1b[2J", r"\x1b[2J"),
        ("\u202egnp.exe\u2028".encode(), r"\u202egnp.exe\u2028"),
        (b"\xff\x00", r"\xff\x00"),
        ("заказ 注文".encode(), "заказ 注文"),
    ],
)
def test_text_has_no_line_breaks_and_no_control_characters(data, shown):
    assert line(Record("7", 0, data, "k")) == f"- {SHARD} k {shown}\n"
    if data != b"\xff\x00":
        assert line(Record("7", 0, b"", data.decode())) == f"- {SHARD} {shown} \n"


def test_a_line_of_text_is_cut_at_the_columns_of_the_terminal():
    start = f"- {SHARD} k "
    assert line(Record("7", 0, b"0123456789", "k"), width=len(start) + 10) == f"{start}0123456789\n"
    assert line(Record("7", 0, b"0123456789", "k"), width=len(start) + 9) == f"{start}01234567…\n"
    # These characters have two columns each.
    assert line(Record("7", 0, "注文注文".encode(), "k"), width=len(start) + 7) == f"{start}注文注…\n"
    assert line(Record("7", 0, b"x" * 1000, "k"), width=1) == "…\n"


def test_json_is_the_line_of_the_sink_and_of_the_export():
    found = json.loads(line(form="json"))
    assert found["headers"][:4] == [
        ["kinesis.stream", "orders"],
        ["kinesis.shard", SHARD],
        ["kinesis.sequence", "7"],
        ["kinesis.sub_sequence", "0"],
    ]
    assert (found["key"], found["value"], found["timestamp"]) == ("customer-7", "eyJpZCI6N30=", 1_700_000_000_123)
    assert json.loads(line(form="json", encoding="utf-8"))["value"] == '{"id":7}'


def test_json_in_utf_8_refuses_other_data_and_says_what_to_do():
    with pytest.raises(UsageError, match=f"{SHARD} 7 is not UTF-8 .* use --encoding base64"):
        line(Record("7", 0, b"\xff", "k"), form="json", encoding="utf-8")


def test_raw_is_the_data_and_a_line_break():
    assert (
        formatter("raw", "orders", encoding="base64", width=5)(SHARD, Record("7", 0, b"\xff\x1b", "k")) == b"\xff\x1b\n"
    )


@pytest.mark.parametrize(
    ("text", "pattern", "key", "matches"),
    [
        ('"id":7', None, None, True),
        ('"id":8', None, None, False),
        ('{"id"', r":\d}$", "customer-7", True),
        (None, r"^\d", None, False),
        (None, None, "customer", False),
        ('"id":7', None, "customer-8", False),
    ],
)
def test_a_record_matches_if_text_pattern_and_key_do(text, pattern, key, matches):
    assert matcher(text, pattern, key)(RECORD) is matches


def test_data_that_is_not_utf_8_is_searched_too():
    record = Record("7", 0, b"\xffid=7", "k")
    assert matcher("id=7", None, None)(record)
    assert matcher(None, "id=[0-9]", None)(record)


def test_without_a_filter_there_is_no_matcher():
    assert matcher(None, None, None) is None


def test_a_wrong_regular_expression_is_refused():
    with pytest.raises(UsageError, match=r"--regex \(: missing \)"):
        matcher(None, "(", None)


def test_json_has_no_characters_that_terminals_obey():
    text = line(Record("7", 0, "\x9b2J\x7f".encode(), "\x9b31m\u202e\U000e0001key"), form="json", encoding="utf-8")
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["key"] == "\x9b31m\u202e\U000e0001key"
    assert json.loads(text)["value"] == "\x9b2J\x7f"
