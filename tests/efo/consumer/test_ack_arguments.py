"""What is acked is checked when it is acked: a batch, and a record that it has."""

from __future__ import annotations

import pytest

from efo.consumer.in_flight import check_index, record_index
from efo.errors import ConfigurationError
from efo.model import Record

RECORD = Record("7", 0.0, b"", "k")


@pytest.mark.parametrize("check", [lambda batch: check_index(batch, 0), lambda batch: record_index(batch, RECORD)])
def test_records_in_place_of_a_batch_are_refused(check):
    with pytest.raises(ConfigurationError, match=r"batch=.*: expected the Batch that was delivered"):
        check([RECORD])
