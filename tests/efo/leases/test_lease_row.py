"""The values in a lease row: times, counts, and what rows of others may leave out."""

import msgspec
import pytest

from efo.errors import ConfigurationError
from efo.leases.lease_row import LeaseRow, check_time
from efo.model import Checkpoint, HashKeyRange, Lease

LEASE = Lease("s", Checkpoint("7"), hash_key_range=HashKeyRange("0", "9"), pending_checkpoint=Checkpoint("8", 3))


def row(**values):
    return msgspec.convert(msgspec.to_builtins(LeaseRow.of(LEASE)) | values, LeaseRow)


@pytest.mark.parametrize("seconds", [None, 0, 0.5, 1_700_000_000.0, 253_370_764_799.0])
def test_a_time_from_1970_to_9999_is_accepted(seconds):
    assert check_time(seconds) == seconds


@pytest.mark.parametrize("seconds", [-0.001, 253_370_764_800.0, 1e18, float("inf"), float("nan")])
def test_a_time_outside_these_years_is_rejected(seconds):
    """Milliseconds passed as seconds, for example."""
    with pytest.raises(ConfigurationError, match="is not a time in seconds since 1970"):
        check_time(seconds)


@pytest.mark.parametrize("count", [0, 2**63 - 1])
def test_a_count_is_up_to_what_every_store_can_hold(count):
    assert row(lease_counter=count).lease().counter == count


@pytest.mark.parametrize("count", [-1, 2**63, 1.5, None])
def test_another_count_is_refused(count):
    with pytest.raises(msgspec.ValidationError):
        row(lease_counter=count)


@pytest.mark.parametrize("missing", ["starting_hash_key", "ending_hash_key"])
def test_half_a_hash_key_range_is_none(missing):
    assert row().lease() == LEASE
    assert row(**{missing: None}).lease().hash_key_range is None


def test_a_pending_checkpoint_without_a_sub_sequence_number_has_0():
    assert row(pending_checkpoint_sub_sequence_number=None).lease().pending_checkpoint == Checkpoint("8", 0)
