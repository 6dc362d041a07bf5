"""Rows as KCL writes them, and their conversion to leases and back."""

import pytest

from efo.errors import ConfigurationError
from efo.leases.stores.dynamodb.items import COUNTER, OWNER, ItemCodec, attributes, update_of
from efo.model import Checkpoint, HashKeyRange, Lease

KEY = "shardId-000000000001"
STREAM = "123456789012:orders:1700000000"

KCL_2 = {
    "leaseKey": {"S": KEY},
    "leaseOwner": {"S": "worker-1"},
    "leaseCounter": {"N": "7"},
    "ownerSwitchesSinceCheckpoint": {"N": "1"},
    "checkpoint": {"S": "49590338271490256608559692538361571095921575989136588898"},
    "checkpointSubSequenceNumber": {"N": "3"},
    "parentShardId": {"SS": ["shardId-000000000000"]},
    "startingHashKey": {"S": "0"},
    "endingHashKey": {"S": "99"},
}
KCL_3 = KCL_2 | {
    "entityType": {"S": "LEASE"},
    "throughputKBps": {"N": "12.500000"},
    "checkpointOwner": {"S": "worker-0"},
    "pendingCheckpoint": {"S": "49590338271490256608559692538361571095921575989136588899"},
    "pendingCheckpointSubSequenceNumber": {"N": "2"},
    "pendingCheckpointState": {"B": b"state"},
    "childShardIds": {"SS": ["b", "a"]},
    "efoLatestAt": {"N": "1767225600.125"},
}
LEASE_2 = Lease(
    KEY,
    Checkpoint("49590338271490256608559692538361571095921575989136588898", 3),
    owner="worker-1",
    counter=7,
    owner_switches=1,
    parents=("shardId-000000000000",),
    hash_key_range=HashKeyRange("0", "99"),
)
NEW = {"leaseKey": {"S": "s"}, "leaseCounter": {"N": "0"}, "checkpoint": {"S": "TRIM_HORIZON"}}


def test_a_row_of_kcl_2_is_read():
    assert ItemCodec().is_lease_of_stream(KCL_2)
    assert ItemCodec().lease(KCL_2) == LEASE_2


def test_a_row_of_kcl_3_is_read_with_all_its_attributes():
    lease = ItemCodec().lease(KCL_3)
    assert ItemCodec().is_lease_of_stream(KCL_3)
    assert (lease.holder, lease.owner, lease.throughput_kbps) == ("worker-0", "worker-1", 12.5)
    assert lease.pending_checkpoint == Checkpoint("49590338271490256608559692538361571095921575989136588899", 2)
    assert (lease.pending_checkpoint_state, lease.children, lease.latest_at) == (b"state", ("a", "b"), 1767225600.125)


TIMED = Lease("s", Checkpoint("7", 1), "ann", stream_created_at=1767000000.125, unread_since=1767225600.5)


def test_the_times_of_efo_are_attributes_of_its_own():
    item = ItemCodec().new_item(TIMED)
    assert item["efoStreamCreatedAt"] == {"N": "1767000000.125"}
    assert item["efoUnreadSince"] == {"S": "1767225600.5 7/1"}
    assert ItemCodec().lease(item) == TIMED


def test_a_time_belongs_to_its_checkpoint_which_kcl_moves_without_it():
    item = ItemCodec().new_item(TIMED)
    moved = ItemCodec().lease(item | {"checkpoint": {"S": "9"}})
    assert (moved.unread_since, moved.stream_created_at) == (None, 1767000000.125)


@pytest.mark.parametrize("noted", ["", "soon", "1.5", "x 7/1"])
def test_a_time_that_is_not_one_of_this_checkpoint_is_unknown_or_an_error(noted):
    item = ItemCodec().new_item(TIMED) | {"efoUnreadSince": {"S": noted}}
    if noted.endswith("7/1"):
        with pytest.raises(ValueError, match="could not convert"):
            ItemCodec().lease(item)
    else:
        assert ItemCodec().lease(item).unread_since is None


def test_a_holder_writes_its_times_although_the_row_has_them():
    # KCL may have moved the checkpoint since, and the row then lacks the time that belongs to it.
    expression = update_of(TIMED, TIMED, (COUNTER,))
    assert expression.update == "SET efoStreamCreatedAt = :efoStreamCreatedAt, efoUnreadSince = :efoUnreadSince"


def test_absent_attributes_get_default_values():
    assert ItemCodec().lease(NEW) == Lease("s", Checkpoint.TRIM_HORIZON)


def test_a_pending_checkpoint_state_that_is_a_number_is_none():
    assert ItemCodec().lease(NEW | {"pendingCheckpointState": {"N": "0"}}).pending_checkpoint_state is None


@pytest.mark.parametrize(
    "entity_type", ["LEADER", "STREAM", "CLIENT_VERSION_MIGRATION", "TABLE_MIGRATION", "WORKER_METRIC_STATS"]
)
def test_rows_of_other_entity_types_are_ignored(entity_type):
    assert not ItemCodec().is_lease_of_stream({"leaseKey": {"S": entity_type}, "entityType": {"S": entity_type}})


@pytest.mark.parametrize("row", [KCL_2, KCL_3, NEW], ids=["kcl 2", "kcl 3", "new"])
def test_a_row_that_is_read_and_written_again_is_the_same_lease(row):
    codec = ItemCodec()
    item = codec.new_item(codec.lease(row))
    assert codec.lease(item) == codec.lease(row)
    assert item["entityType"] == {"S": "LEASE"}
    assert item.keys() >= row.keys()


def test_none_and_empty_values_are_not_written():
    assert set(attributes(Lease("s", Checkpoint.LATEST))) == {
        "leaseCounter",
        "ownerSwitchesSinceCheckpoint",
        "checkpoint",
        "checkpointSubSequenceNumber",
    }


def test_keys_in_a_multi_stream_table_contain_the_stream_id():
    codec = ItemCodec(STREAM)
    item = codec.new_item(LEASE_2)
    assert item["leaseKey"] == codec.key(KEY)["leaseKey"] == {"S": f"{STREAM}:{KEY}"}
    assert (item["streamName"], item["shardId"]) == ({"S": STREAM}, {"S": KEY})
    assert item["parentShardId"] == {"SS": ["shardId-000000000000"]}
    assert codec.is_lease_of_stream(item)
    assert codec.lease(item) == LEASE_2
    assert not ItemCodec("123456789012:others:1700000000").is_lease_of_stream(item)
    with pytest.raises(ConfigurationError, match="without a stream: use another table for many streams"):
        codec.is_lease_of_stream(KCL_2)
    with pytest.raises(ConfigurationError, match=f"it has leases of '{STREAM}': set stream_id"):
        ItemCodec().is_lease_of_stream(item)


def test_an_empty_pending_checkpoint_state_is_not_none():
    lease = Lease("s", Checkpoint.LATEST, pending_checkpoint=Checkpoint("7"), pending_checkpoint_state=b"")
    assert ItemCodec().lease(ItemCodec().new_item(lease)) == lease


@pytest.mark.parametrize(
    "invalid",
    [
        {"leaseCounter": {"S": "7"}},
        {"leaseCounter": {"N": "7.5"}},
        {"checkpoint": {"S": "elsewhere"}},
        {"checkpoint": {"N": "7"}},
        {"checkpoint": {"S": None}},
        {"checkpointSubSequenceNumber": {"N": "x"}},
        {"parentShardId": {"S": "shardId-000000000000"}},
        {"throughputKBps": {"N": "much"}},
        {"pendingCheckpoint": {"S": "-1"}},
        {"leaseOwner": {"N": "1"}},
    ],
    ids=str,
)
def test_an_invalid_attribute_is_rejected(invalid):
    with pytest.raises((ConfigurationError, LookupError, TypeError, ValueError)):
        ItemCodec().lease(KCL_2 | invalid)


@pytest.mark.parametrize("name", ["leaseKey", "leaseCounter", "checkpoint"])
def test_a_missing_attribute_is_named(name):
    with pytest.raises(LookupError, match=name):
        ItemCodec().lease({key: value for key, value in KCL_2.items() if key != name})


def test_a_key_of_another_stream_is_rejected():
    with pytest.raises(ConfigurationError, match="does not begin"):
        ItemCodec(STREAM).lease(KCL_2)


def test_an_update_writes_only_the_attributes_that_differ():
    old = Lease("s", Checkpoint.LATEST, owner="ann", counter=3, parents=("p",))
    new = Lease("s", Checkpoint("9", 1), counter=4, parents=("p",))
    expression = update_of(old, new, (COUNTER, OWNER, "checkpointOwner"))
    assert expression.update == (
        "SET leaseCounter = :leaseCounter, checkpoint = :checkpoint, "
        "checkpointSubSequenceNumber = :checkpointSubSequenceNumber REMOVE leaseOwner"
    )
    assert expression.condition == (
        "leaseCounter = :was_leaseCounter AND leaseOwner = :was_leaseOwner AND attribute_not_exists(checkpointOwner)"
    )
    assert expression.values == {
        ":leaseCounter": {"N": "4"},
        ":checkpoint": {"S": "9"},
        ":checkpointSubSequenceNumber": {"N": "1"},
        ":was_leaseCounter": {"N": "3"},
        ":was_leaseOwner": {"S": "ann"},
    }
