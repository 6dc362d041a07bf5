"""Which stream leases are of: the evidence, and what is none (rule R15)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from efo.errors import ServiceError
from efo.model import Checkpoint, HashKeyRange, Lease, Position, Shard
from efo.protocol.identity import (
    MARGIN,
    TOLERANCE,
    are_same,
    evidence_against,
    has_changed,
    has_other_starts,
    is_refusal,
    shard_number_of,
)

ALL_KEYS = HashKeyRange("0", str(2**128 - 1))
LOW, HIGH = HashKeyRange("0", str(2**127 - 1)), HashKeyRange(str(2**127), str(2**128 - 1))
CREATED_AT = 1_700_000_000.0
AWS_NUMBER = "49590338271490256608559692538361571095921575989136588898"
"""A sequence number of AWS's documentation."""


def aws_number(shard: int, of_stream: int = 5, index: int = 1) -> str:
    """Return a number in the layout of AWS's: the version 2, a time, the shard and a counter."""
    return str(2 << 184 | of_stream << 68 | index << 36 | shard << 4 | 2)


def shard(number: int = 0, *, keys: HashKeyRange = ALL_KEYS, is_open: bool = True, of_stream: int = 5) -> Shard:
    first = aws_number(number, of_stream)
    last = None if is_open else aws_number(number, of_stream, 99)
    return Shard(f"shardId-{number:012d}", keys, first, last)


def lease(number: int = 0, checkpoint: Checkpoint = Checkpoint.TRIM_HORIZON, **fields: object) -> Lease:
    return replace(Lease(f"shardId-{number:012d}", checkpoint, hash_key_range=ALL_KEYS), **fields)


def kinds(leases: list[Lease], shards: list[Shard], created_at: float | None = None) -> list[str]:
    return [evidence.kind for evidence in evidence_against(leases, shards, created_at)]


# --- times of creation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (CREATED_AT, CREATED_AT, True),
        (CREATED_AT, CREATED_AT + TOLERANCE, True),  # CBOR drops the milliseconds
        (CREATED_AT, CREATED_AT + 1.5, False),
        (CREATED_AT, CREATED_AT - 1.5, False),
        (None, CREATED_AT, None),
        (CREATED_AT, None, None),
    ],
)
def test_two_times_of_creation_are_compared(one, other, expected):
    assert are_same(one, other) is expected


def test_a_lease_of_another_time_of_creation_is_certain():
    (evidence,) = evidence_against([lease(stream_created_at=CREATED_AT - 60)], [shard()], CREATED_AT)
    assert evidence.kind == "created"
    assert evidence.is_certain


def test_one_such_lease_among_others_is_enough():
    # A worker of the new stream, on a listing of the old one, may have stamped some rows.
    leases = [lease(0, stream_created_at=CREATED_AT), lease(1, stream_created_at=CREATED_AT - 60)]
    assert kinds(leases, [shard(0), shard(1)], CREATED_AT) == ["created"]


def test_a_later_stamp_than_the_stream_is_another_stream_too():
    # The name was given to another account's or region's stream, or a lease table was copied.
    assert kinds([lease(stream_created_at=CREATED_AT + 60)], [shard()], CREATED_AT) == ["created"]


def test_a_lease_of_this_stream_is_believed_whatever_else_it_says():
    finished = lease(checkpoint=Checkpoint.SHARD_END, stream_created_at=CREATED_AT, hash_key_range=LOW)
    assert kinds([finished], [shard()], CREATED_AT) == []


def test_without_times_nothing_is_concluded_from_them():
    assert kinds([lease(stream_created_at=CREATED_AT)], [shard()]) == []
    assert kinds([lease()], [shard()], CREATED_AT) == []


# --- leases of LATEST ------------------------------------------------------------------------------------------


def test_a_lease_at_latest_from_before_the_stream_is_of_another_one():
    old = lease(checkpoint=Checkpoint.LATEST, latest_at=CREATED_AT - MARGIN - 1)
    assert kinds([old], [shard()], CREATED_AT) == ["older"]


def test_a_lease_at_latest_within_the_error_of_clocks_is_not():
    near = lease(checkpoint=Checkpoint.LATEST, latest_at=CREATED_AT - MARGIN + 1)
    assert kinds([near], [shard()], CREATED_AT) == []


def test_the_time_of_a_reset_is_not_that_of_its_lease():
    # `efo leases reset --to 2020-01-01T00:00:00Z` may name a time before the stream.
    reset = lease(checkpoint=Checkpoint("AT_TIMESTAMP"), latest_at=CREATED_AT - 1e6)
    moved = lease(checkpoint=Checkpoint(aws_number(0, index=2)), latest_at=CREATED_AT - 1e6)
    assert kinds([reset], [shard()], CREATED_AT) == []
    assert kinds([moved], [shard()], CREATED_AT) == []


# --- what of a shard never changes -----------------------------------------------------------------------------


def test_other_hash_keys_are_certain():
    (evidence,) = evidence_against([lease(hash_key_range=LOW)], [shard(keys=HIGH)], None)
    assert evidence.kind == "hash_keys"
    assert evidence.is_certain


def test_hash_keys_are_compared_as_numbers():
    padded = HashKeyRange("000", "0" + str(2**128 - 1))
    assert kinds([lease(hash_key_range=padded)], [shard()]) == []


def test_a_row_without_hash_keys_says_nothing_by_them():
    assert kinds([lease(hash_key_range=None)], [shard(keys=LOW)]) == []


def test_a_finished_lease_of_an_open_shard_is_a_suspicion():
    (evidence,) = evidence_against([lease(checkpoint=Checkpoint.SHARD_END)], [shard()], None)
    assert evidence.kind == "is_open"
    assert not evidence.is_certain  # the listing may be from before the reshard


def test_a_finished_lease_of_a_closed_shard_is_right():
    assert kinds([lease(checkpoint=Checkpoint.SHARD_END)], [shard(is_open=False)]) == []


def test_a_lease_whose_shard_is_not_listed_any_more_says_nothing():
    # Its records have expired, or a listing is late after a reshard.
    leases = [lease(0, Checkpoint.SHARD_END), lease(7, Checkpoint(aws_number(7)))]
    assert kinds(leases, [shard(1)], CREATED_AT) == []


# --- positions -------------------------------------------------------------------------------------------------


def test_the_number_of_the_shard_is_read_from_numbers_of_aws():
    assert shard_number_of(aws_number(17)) == 17
    assert shard_number_of(AWS_NUMBER) is not None


@pytest.mark.parametrize("number", ["0", "1", "21269319989653637946712965403778482176", str(2**184), str(2**190)])
def test_other_layouts_carry_none(number):
    assert shard_number_of(number) is None


def test_a_checkpoint_that_carries_another_shard_is_a_suspicion():
    (evidence,) = evidence_against([lease(1, Checkpoint(aws_number(0, 9)))], [shard(1)], None)
    assert evidence.kind == "position"
    assert not evidence.is_certain


def test_a_checkpoint_before_the_first_number_of_its_shard_is_a_suspicion():
    assert kinds([lease(0, Checkpoint(aws_number(0, of_stream=4)))], [shard(0, of_stream=5)]) == ["position"]


def test_a_checkpoint_at_or_after_the_first_number_is_not():
    assert kinds([lease(0, Checkpoint(aws_number(0)))], [shard(0)]) == []
    assert kinds([lease(0, Checkpoint(aws_number(0, index=50)))], [shard(0)]) == []


def test_checkpoints_of_kcl_that_name_no_record_are_not_positions():
    leases = [lease(n, Checkpoint(name)) for n, name in enumerate(("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"))]
    assert kinds(leases, [shard(n) for n in range(3)]) == []


def test_what_is_certain_comes_first():
    leases = [lease(0, Checkpoint.SHARD_END), lease(1, Checkpoint(aws_number(0))), lease(2, hash_key_range=LOW)]
    assert kinds(leases, [shard(n) for n in range(3)]) == ["hash_keys", "is_open", "position"]


# --- two listings ----------------------------------------------------------------------------------------------


def starts(*shards: Shard) -> dict[str, str]:
    return {shard.shard_id: shard.starting_sequence_number for shard in shards}


def test_a_listing_that_grows_or_forgets_old_shards_has_not_changed():
    assert not has_changed({}, [shard(0)])
    assert not has_changed(starts(shard(0)), [shard(0), shard(1), shard(2)])
    assert not has_changed(starts(shard(0), shard(1)), [shard(1)])  # shard 0 has expired
    assert not has_changed(starts(shard(0)), [shard(3), shard(4)])


def test_another_first_number_is_another_stream():
    assert has_changed(starts(shard(0)), [shard(0, of_stream=6)])
    assert has_other_starts(starts(shard(0)), [shard(0, of_stream=6)])


def test_a_listing_without_the_newest_shard_is_doubtful():
    # Recreated with fewer shards, or answered by a replica that is late.
    assert has_changed(starts(shard(0), shard(1), shard(2)), [shard(0)])
    assert not has_other_starts(starts(shard(0), shard(1), shard(2)), [shard(0)])
    assert has_changed(starts(shard(0)), [])


# --- what the service says -------------------------------------------------------------------------------------

POSITION = Position.at(AWS_NUMBER)


@pytest.mark.parametrize(
    ("code", "message", "position", "expected"),
    [
        (
            "InvalidArgumentException",
            (
                "StartingSequenceNumber 495... used in GetShardIterator on shard shardId-000000000000 in stream s "
                "under account 111111111111 is invalid because it did not come from this stream."
            ),
            POSITION,
            True,
        ),
        (
            "InvalidArgumentException",
            (
                "Invalid StartingSequenceNumber. It encodes shardId-000000000002, while it was used in a call to a "
                "shard with shardId-000000000000"
            ),
            POSITION,
            True,
        ),
        ("InvalidArgumentException", "Timestamp must be in the past", Position.at_timestamp(1.0), False),
        ("InvalidArgumentException", "StartingSequenceNumber is not to be sent", Position.trim_horizon(), False),
        ("ResourceNotFoundException", "StartingSequenceNumber", POSITION, False),
        ("InvalidArgumentException", "The consumer ARN is invalid", POSITION, False),
    ],
)
def test_a_refused_position_is_known_by_its_code_and_parameter(code, message, position, expected):
    assert is_refusal(ServiceError(code, message), position) is expected
