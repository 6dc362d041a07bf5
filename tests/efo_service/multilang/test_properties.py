"""Java's properties format."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efo.errors import ConfigurationError
from efo_service.multilang.properties import parse


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a = b", {"a": "b"}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb c ", {"a": "b c"}),
        ("  a  =  b  ", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a = = b", {"a": "= b"}),
        ("# a = b\n! c = d\n\n  # e\nf = g", {"f": "g"}),
        ("a = b \\\n   c", {"a": "b c"}),
        ("a = b\\\r\n  # c", {"a": "b# c"}),
        ("a = b\\\\\nc = d", {"a": "b\\", "c": "d"}),
        (r"a\ b\:c = d", {"a b:c": "d"}),
        (r"a = \u00e9\t\q", {"a": "é\tq"}),
        ("a = 1\na = 2", {"a": "2"}),
        ("a = x # no comment", {"a": "x # no comment"}),
        ("a = b\\", {"a": "b"}),
        ("a = arn:aws:kinesis:us-east-5:0:stream/x", {"a": "arn:aws:kinesis:us-east-5:0:stream/x"}),
        ("", {}),
    ],
)
def test_lines_are_read_as_java_reads_them(text, values):
    assert parse(text) == values


def test_an_incomplete_escape_is_refused_with_its_line():
    with pytest.raises(ConfigurationError, match="line 2"):
        parse("a = b\nc = \\u12")


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with suppress(ConfigurationError):
        parse(text)
