"""What is reported of the error that ends a consumer, or isolates a shard."""

from __future__ import annotations

import pytest

from efo.consumer.ending import failure_of
from efo.errors import IsolateShardError, StreamResetError


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (LookupError("a key"), "LookupError"),
        (caused(LookupError("a key"), ValueError("bad")), "LookupError"),
        (caused(IsolateShardError("s-0"), LookupError("a key")), "LookupError"),
        (IsolateShardError("s-0"), IsolateShardError("s-0").error_type),
        (caused(StreamResetError("reset", code=8), OSError("cut")), StreamResetError("reset", code=8).error_type),
    ],
)
def test_the_type_is_that_of_the_error_or_of_what_isolates_the_shard(error, reported):
    assert failure_of(error).error_type == reported
