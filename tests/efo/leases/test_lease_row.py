"""The times in a lease row."""

import pytest

from efo.errors import ConfigurationError
from efo.leases.lease_row import check_time


@pytest.mark.parametrize("seconds", [None, 0, 0.5, 1_700_000_000.0, 253_370_764_799.0])
def test_a_time_from_1970_to_9999_is_accepted(seconds):
    assert check_time(seconds) == seconds


@pytest.mark.parametrize("seconds", [-0.001, 253_370_764_800.0, 1e18, float("inf"), float("nan")])
def test_a_time_outside_these_years_is_rejected(seconds):
    """Milliseconds passed as seconds, for example."""
    with pytest.raises(ConfigurationError, match="is not a time in seconds since 1970"):
        check_time(seconds)
