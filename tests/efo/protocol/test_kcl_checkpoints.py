"""Which checkpoints a processor may have, as KCL's checkpointer decides."""

from decimal import Decimal

import pytest

from efo.errors import LeaseLostError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.model import Checkpoint, Record
from efo.protocol.kcl_checkpoints import KclCheckpointError, Permitted, refusal_of


def record(number, sub=0):
    return Record(str(number), 0.0, b"", "k", sub_sequence_number=sub)


def permitted(last=5, largest=(9, 2)):
    made = Permitted.after(Checkpoint(str(last)))
    made.give(record(*largest))
    return made


@pytest.mark.parametrize(
    ("sequence", "sub", "checkpoint"),
    [
        (None, None, Checkpoint("9", 2)),
        ("9", 2, Checkpoint("9", 2)),
        ("9", None, Checkpoint("9")),  # as in KCL: the rest of the aggregate is read again
        ("7", 0, Checkpoint("7")),
        ("5", 0, Checkpoint("5")),
        (7, "1", Checkpoint("7", 1)),
    ],
)
def test_a_checkpoint_is_within_what_was_given(sequence, sub, checkpoint):
    assert permitted().resolve(sequence, sub) == checkpoint


@pytest.mark.parametrize(
    ("sequence", "sub"),
    [
        ("4", 9),
        ("9", 3),
        ("10", 0),
        ("1" * 200, 0),
        ("x", 0),
        ("", 0),
        ("-7", 0),
        ("SHARD_END", 0),
        ("LATEST", 0),
        (["7"], 0),
        (Decimal(7), 0),
        (True, 0),
        ("7", -1),
        ("7", "x"),
        ("7", 1.5),
        ("7", True),
    ],
)
def test_every_other_checkpoint_is_an_illegal_argument(sequence, sub):
    with pytest.raises(KclCheckpointError) as caught:
        permitted().resolve(sequence, sub)
    assert (caught.value.name, str(caught.value)) == ("IllegalArgumentException", "IllegalArgumentException")


def test_a_checkpoint_does_not_move_back_and_may_be_repeated():
    made = permitted()
    made.resolve("8", 0)
    assert made.resolve("8", 0) == Checkpoint("8")
    with pytest.raises(KclCheckpointError):
        made.resolve("7", 0)


def test_before_the_first_record_a_checkpoint_changes_nothing():
    assert Permitted.after(Checkpoint.TRIM_HORIZON).resolve(None, None) == Checkpoint.TRIM_HORIZON


def test_after_a_seek_back_earlier_checkpoints_are_permitted_again():
    made = permitted()
    made.resolve(None, None)
    made.give(record(3))
    assert made.resolve("3", 0) == Checkpoint("3")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (LeaseLostError("gone"), "ShutdownException"),
        (LeaseStoreUnavailableError("down"), "ThrottlingException"),
        (LeaseStoreCorruptError("broken"), "InvalidStateException"),
    ],
)
def test_errors_of_the_lease_store_have_kcls_names(error, name):
    assert refusal_of(error) == name
