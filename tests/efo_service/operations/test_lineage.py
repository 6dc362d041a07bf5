"""The tree of shards: structure, states, and positions for the lag."""

from __future__ import annotations

from efo.model import Checkpoint, FanOutConsumer, HashKeyRange, Lease, Position, Shard
from efo_service.operations.lineage import DAY, ShardNode, position_of, shard_tree, stale


def shard(key, *parents, closed=False):
    return Shard(key, HashKeyRange("0", "9"), "1", "2" if closed else None, *parents)


def outline(nodes):
    return [(node.depth, node.shard_id, node.state) for node in nodes]


def test_children_are_below_their_parents_and_a_merged_shard_below_its_first_parent():
    shards = [shard("0", closed=True), shard("1", closed=True), shard("2", "0"), shard("3", "0", closed=True)]
    shards += [shard("4", "3", "1")]
    assert outline(shard_tree(shards, {})) == [
        (0, "0", "no_lease"),
        (1, "2", "no_lease"),
        (1, "3", "no_lease"),
        (2, "4", "no_lease"),
        (0, "1", "no_lease"),
    ]


def test_the_lease_and_the_parents_determine_the_state_of_a_shard():
    leases = [
        Lease("0", Checkpoint.SHARD_END),
        Lease("1", Checkpoint("5"), owner="ann"),
        Lease("2", Checkpoint.TRIM_HORIZON, parents=("0",)),
        Lease("3", Checkpoint.TRIM_HORIZON, parents=("1",)),
        Lease("4", Checkpoint.LATEST, owner="bob", checkpoint_owner="ann"),
        Lease("9", Checkpoint.SHARD_END),
    ]
    shards = [shard("0", closed=True), shard("1", closed=True), shard("2", "0"), shard("3", "1"), shard("4")]
    nodes = {node.shard_id: node for node in shard_tree([*shards, shard("5")], {lease.key: lease for lease in leases})}
    states = {key: node.state for key, node in nodes.items()}
    assert states == {
        "0": "finished",
        "1": "consuming",
        "2": "ready",
        "3": "waiting_parent",
        "4": "handing_over",
        "5": "no_lease",
        "9": "finished",
    }
    assert (nodes["4"].owner, nodes["1"].owner, nodes["5"].owner) == ("ann", "ann", None)
    assert (nodes["1"].is_open, nodes["4"].is_open) == (False, True)
    assert (nodes["9"].is_listed, nodes["9"].is_open) == (False, False)


def test_a_shard_whose_parent_is_gone_is_a_root():
    assert outline(shard_tree([shard("5", "gone")], {})) == [(0, "5", "no_lease")]


def test_the_lag_is_requested_from_the_checkpoint_of_an_unfinished_listed_shard():
    def node(checkpoint, state="consuming", *, is_listed=True, starts_at=None):
        return ShardNode("s", 0, state, is_open=True, is_listed=is_listed, checkpoint=checkpoint, starts_at=starts_at)

    assert position_of(node(Checkpoint.TRIM_HORIZON)) == Position.trim_horizon()
    assert position_of(node(Checkpoint("7", 3))) == Position.after("7")
    assert position_of(node(Checkpoint.LATEST)) == Position.latest()
    assert position_of(node(Checkpoint.LATEST, starts_at=5.0)) == Position.at_timestamp(5.0)
    assert position_of(node(Checkpoint.AT_TIMESTAMP, starts_at=5.0)) == Position.at_timestamp(5.0)
    for without_lag in (
        node(None, "no_lease"),
        node(Checkpoint.SHARD_END, "finished"),
        node(Checkpoint("7"), is_listed=False),
        node(Checkpoint.AT_TIMESTAMP),
    ):
        assert position_of(without_lag) is None


NOW = 1_800_000_000


def consumer(name, days, status="ACTIVE"):
    return FanOutConsumer(
        name, f"arn:aws:kinesis:us-east-1:1:stream/s/consumer/{name}:{NOW - round(days * DAY)}", status
    )


def test_stale_consumers_match_name_and_age_and_are_never_efos_own():
    consumers = [
        consumer("worker-1", 8),
        consumer("worker-2", 6.9),
        consumer("worker-3", 8, "DELETING"),
        consumer("worker-own", 99),
        consumer("billing", 99),
    ]
    result = stale(consumers, match="worker-*", older_than=7, now=NOW, own="worker-own")
    assert [one.name for one in result] == ["worker-1"]
