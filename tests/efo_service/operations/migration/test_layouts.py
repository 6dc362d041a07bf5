"""Rows of each library as its documented schema has them: what efo reads in them, and what it writes back."""

from decimal import Decimal

import pytest

from efo.model import Checkpoint, HashKeyRange, Lease, Shard
from efo_service.operations.migration.async_kinesis import AsyncKinesisKeys, AsyncKinesisTable
from efo_service.operations.migration.harlow import HarlowColumns, HarlowKeys, HarlowTable
from efo_service.operations.migration.kcl import KclTable, KinesumerTable, VmwareTable
from efo_service.operations.migration.layout import Found, Heartbeat, NotHeldError, OtherStream, RowError, Scope

SCOPE = Scope("billing", "orders")
SHARD, PARENT = "shardId-000000000002", "shardId-000000000000"
NUMBER = "49590338271490256608559692538361571095921575989136588898"
LISTED = Shard(SHARD, HashKeyRange("0", "9"), "100", "999")

KCL_1 = {
    "leaseKey": {"S": SHARD},
    "leaseOwner": {"S": "worker-1"},
    "leaseCounter": {"N": "7"},
    "checkpoint": {"S": NUMBER},
    "checkpointSubSequenceNumber": {"N": "3"},
    "ownerSwitchesSinceCheckpoint": {"N": "0"},
    "parentShardId": {"SS": [PARENT]},
}
VMWARE = {
    "ShardID": {"S": SHARD},
    "AssignedTo": {"S": "worker-1"},
    "LeaseTimeout": {"S": "2026-11-23T04:00:00.1Z"},
    "Checkpoint": {"S": NUMBER},
    "ParentShardId": {"S": PARENT},
}
KINESUMER = {
    "pk": {"S": "check_point#billing#orders"},
    "sk": {"S": SHARD},
    "sequence_number": {"S": NUMBER},
    "last_update": {"S": "2026-11-23T04:00:00Z"},
}
HARLOW_ITEM = {"namespace": {"S": "billing-orders"}, "shard_id": {"S": SHARD}, "sequence_number": {"S": NUMBER}}
HARLOW_KEY = {"key": f"billing:checkpoint:orders:{SHARD}", "value": NUMBER}
HARLOW_ROW = {"namespace": "billing-orders", "shard_id": SHARD, "sequence_number": Decimal(NUMBER)}
ASYNC_KEY = {"key": f"pyredis-billing-{SHARD}", "value": f'{{"ref":"billing/1","ts":1700000000,"sequence":"{NUMBER}"}}'}
ASYNC_ITEM = {
    "shard_id": {"S": SHARD},
    "ref": {"S": "billing/1"},
    "ts": {"N": "1700000000"},
    "sequence": {"S": NUMBER},
    "ttl": {"N": "1700086400"},
}
ROWS = [
    (KclTable(), KCL_1),
    (VmwareTable(), VMWARE),
    (KinesumerTable(), KINESUMER),
    (HarlowTable(), HARLOW_ITEM),
    (HarlowKeys(), HARLOW_KEY),
    (HarlowColumns(), HARLOW_ROW),
    (AsyncKinesisKeys(), ASYNC_KEY),
    (AsyncKinesisTable(), ASYNC_ITEM),
]
EACH = pytest.mark.parametrize(("layout", "row"), ROWS, ids=lambda value: type(value).__name__)
WITHOUT_SENTINELS = [pair for pair in ROWS if not isinstance(pair[0], KclTable)]


def without(row, name):
    return {key: value for key, value in row.items() if key != name}


@EACH
def test_the_shard_and_its_checkpoint_are_read(layout, row):
    found = layout.read(row, SCOPE)
    sub = 3 if isinstance(layout, KclTable) else 0
    assert (found.shard_id, found.checkpoint) == (SHARD, Checkpoint(NUMBER, sub))
    assert SHARD in found.key
    assert found.key == layout.key_of(row)


@EACH
def test_a_row_that_is_written_continues_after_the_lease(layout, row):
    lease = Lease(SHARD, Checkpoint("777"), parents=(PARENT,), owner="efo-1")
    for old in (None, (row, layout.read(row, SCOPE))):
        found = layout.read(layout.write(lease, LISTED, SCOPE, old), SCOPE)
        assert (found.shard_id, found.checkpoint, found.owner) == (SHARD, Checkpoint("777"), None)


@EACH
def test_the_end_of_a_shard_is_the_last_position_of_the_library(layout, row):
    written = layout.write(Lease(SHARD, Checkpoint.SHARD_END), LISTED, SCOPE, None)
    match layout:
        case KclTable() | VmwareTable():
            assert layout.read(written, SCOPE).checkpoint == Checkpoint.SHARD_END
        case KinesumerTable():
            assert written is None  # it reads open shards only
        case _:
            assert layout.read(written, SCOPE).checkpoint == Checkpoint("999")
            assert layout.write(Lease(SHARD, Checkpoint.SHARD_END), None, SCOPE, None) is None


@pytest.mark.parametrize(("layout", "row"), WITHOUT_SENTINELS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("checkpoint", "why"),
    [(Checkpoint("5", 2), "rest of the aggregate would be lost"), (Checkpoint.TRIM_HORIZON, "no checkpoint like TRIM")],
)
def test_a_position_that_the_library_cannot_hold_is_refused(layout, row, checkpoint, why):
    with pytest.raises(NotHeldError, match=why):
        layout.write(Lease(SHARD, checkpoint), LISTED, SCOPE, None)


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        (KclTable(), without(KCL_1, "checkpoint")),
        (KclTable(), KCL_1 | {"checkpoint": {"S": "yesterday"}}),
        (KclTable(), without(KCL_1, "leaseCounter")),
        (VmwareTable(), VMWARE | {"ShardID": {"S": ""}}),
        (VmwareTable(), VMWARE | {"Checkpoint": {"S": "TRIM_HORIZON"}}),
        (VmwareTable(), VMWARE | {"Checkpoint": {"N": "5"}}),
        (KinesumerTable(), KINESUMER | {"sequence_number": {"S": "SHARD_END"}}),
        (HarlowTable(), without(HARLOW_ITEM, "sequence_number")),
        (HarlowKeys(), HARLOW_KEY | {"value": "1e55"}),
        (HarlowColumns(), HARLOW_ROW | {"shard_id": "shard 1"}),
        (AsyncKinesisKeys(), ASYNC_KEY | {"value": "49590"}),
        (AsyncKinesisKeys(), ASYNC_KEY | {"value": '{"sequence":5}'}),
        (AsyncKinesisTable(), ASYNC_ITEM | {"sequence": {"N": "5"}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_row_that_cannot_be_read_is_refused(layout, row):
    with pytest.raises(RowError):
        layout.read(row, SCOPE)


@pytest.mark.parametrize("number", [4.95e55, Decimal("1.5")])
def test_a_column_that_loses_digits_is_refused(number):
    with pytest.raises(RowError, match="the type of the column has lost digits"):
        HarlowColumns().read(HARLOW_ROW | {"sequence_number": number}, SCOPE)


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        (KclTable(), {"leaseKey": {"S": "worker"}, "entityType": {"S": "WORKER_METRIC_STATS"}}),
        (KinesumerTable(), KINESUMER | {"pk": {"S": "check_point#billing#clicks"}}),
        (KinesumerTable(), {"pk": {"S": "shard_cache#billing"}, "sk": {"S": "orders"}}),
        (KinesumerTable(), {"pk": {"S": "client#other"}, "sk": {"S": "host1"}}),
        (HarlowTable(), HARLOW_ITEM | {"namespace": {"S": "billing-clicks"}}),
        (AsyncKinesisKeys(), {"key": f"pyredis-billing-eu-{SHARD}", "value": "{}"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rows_of_other_applications_and_streams_are_left_alone(layout, row):
    assert layout.read(row, SCOPE) is None


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        (VmwareTable(), without(VMWARE, "Checkpoint")),
        (VmwareTable(), VMWARE | {"Checkpoint": {"S": ""}}),
        (KinesumerTable(), KINESUMER | {"sequence_number": {"S": ""}}),
        (AsyncKinesisKeys(), ASYNC_KEY | {"value": '{"ref":"billing/1","ts":1,"sequence":null}'}),
        (AsyncKinesisTable(), ASYNC_ITEM | {"sequence": {"NULL": True}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_shard_that_was_taken_and_never_checkpointed_has_no_checkpoint(layout, row):
    assert layout.read(row, SCOPE).checkpoint is None


def test_a_client_of_kinesumer_is_a_heartbeat():
    row = {"pk": {"S": "client#billing"}, "sk": {"S": "host1"}, "last_update": {"S": "2026-11-23T04:00:00Z"}}
    assert KinesumerTable().read(row, SCOPE) == Heartbeat("client#billing host1", ("2026-11-23T04:00:00Z",))


def test_kcls_multi_stream_keys_lineage_and_pending_checkpoints_are_read():
    row = KCL_1 | {
        "leaseKey": {"S": f"123456789012:orders:5:{SHARD}"},
        "streamName": {"S": "123456789012:orders:5"},
        "shardId": {"S": SHARD},
        "childShardIds": {"SS": ["shardId-000000000004", "shardId-000000000003"]},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": "9"},
        "pendingCheckpoint": {"S": "888"},
        "pendingCheckpointSubSequenceNumber": {"N": "1"},
        "pendingCheckpointState": {"B": b"state"},
        "checkpointOwner": {"S": "worker-2"},
    }
    assert KclTable().read(row, SCOPE) == Found(
        key=f"123456789012:orders:5:{SHARD}",
        shard_id=SHARD,
        checkpoint=Checkpoint(NUMBER, 3),
        pulse=(7, "worker-1", Checkpoint(NUMBER, 3)),
        owner="worker-2",
        stream_id="123456789012:orders:5",
        parents=(PARENT,),
        children=("shardId-000000000003", "shardId-000000000004"),
        hash_key_range=HashKeyRange("0", "9"),
        pending_checkpoint=Checkpoint("888", 1),
        pending_checkpoint_state=b"state",
        notes=("its pending checkpoint 888/1 is kept",),
    )


def test_a_row_of_another_stream_in_kcls_table_names_that_stream():
    row = KCL_1 | {"streamName": {"S": "123456789012:clicks:1"}}
    assert KclTable().read(row, SCOPE) == OtherStream("123456789012:clicks:1")


def test_kcl_gets_its_row_with_a_higher_counter_and_with_what_efo_does_not_know():
    row = KCL_1 | {"somethingNew": {"S": "kept"}, "checkpointOwner": {"S": "worker-2"}}
    lease = Lease(SHARD, Checkpoint("777", 1), parents=(PARENT,), counter=99, owner="efo-1")
    written = KclTable().write(lease, LISTED, SCOPE, (row, KclTable().read(row, SCOPE)))
    assert written == without(KCL_1, "leaseOwner") | {
        "leaseCounter": {"N": "8"},
        "checkpoint": {"S": "777"},
        "checkpointSubSequenceNumber": {"N": "1"},
        "somethingNew": {"S": "kept"},
    }


def test_a_new_shard_of_a_multi_stream_table_gets_kcls_key():
    scope = Scope("billing", "orders", "123456789012:orders:5")
    written = KclTable().write(Lease(SHARD, Checkpoint.TRIM_HORIZON), LISTED, scope, None)
    assert written["leaseKey"] == {"S": f"123456789012:orders:5:{SHARD}"}
    assert KclTable().read(written, scope).checkpoint == Checkpoint.TRIM_HORIZON
