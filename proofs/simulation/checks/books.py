"""What the checks know while a story grows: shards, shard tasks and workers, and what is still to be done. Pure."""

from __future__ import annotations

from efo.model import Checkpoint
from proofs.simulation.checks.guarantees import Guarantees
from proofs.simulation.checks.ledger import ShardLedger, TaskLedger
from proofs.simulation.checks.lineage import generation, must_be_deleted

MAX_PROBLEMS = 20
"""How many problems are kept. Later ones are usually consequences of the first."""


class Books:
    """What the story has shown so far. `problems`: the broken guarantees, each a sentence.

    `shards`: by their ids. `open`, `closed`: shard tasks by worker and shard. `at_millis`: where shards start
    AT_TIMESTAMP. `unprocessed`: how many records must still take effect. `failed`: the workers that an error ended.
    `crashed`: the processes that crashed, and their worker ids. `store_failed`: the workers to which the store failed.
    """

    def __init__(self, guarantees: Guarantees) -> None:
        self.guarantees = guarantees
        self.problems: list[str] = []
        self.shards: dict[str, ShardLedger] = {}
        self.open: dict[tuple[str, str], TaskLedger] = {}
        self.closed: dict[tuple[str, str], TaskLedger] = {}
        self.at_millis: int | None = None
        self.unprocessed = 0
        self.failed: set[str] = set()
        self.crashed: set[str] = set()
        self.store_failed: set[str] = set()

    def shard(self, shard_id: str) -> ShardLedger:
        """Return a shard; its ledger begins when the story first names it."""
        return self.shards.setdefault(shard_id, ShardLedger())

    def report(self, problem: str) -> None:
        """Keep a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    # --- where shards start --------------------------------------------------------------------------------

    @property
    def initial(self) -> Checkpoint:
        """Where a shard starts that was never read, and whose parents were not."""
        if self.at_millis is not None:
            return Checkpoint.AT_TIMESTAMP
        return Checkpoint.LATEST if self.guarantees.at_latest else Checkpoint.TRIM_HORIZON

    def required(self, shard: ShardLedger) -> range:
        """Return the indexes of the records that must be read."""
        return range(shard.first_index, len(shard.marks)) if shard.has_lease else range(0)

    def may_be_left_out(self, shard: ShardLedger) -> bool:
        """Return whether a closed shard may have no lease: nothing in it is new enough for the initial position."""
        if self.at_millis is not None:
            return not shard.put_millis or shard.put_millis[-1] < self.at_millis
        return self.guarantees.at_latest

    def lacks_lease(self, shard: ShardLedger) -> bool:
        """Return whether a shard has no lease but needs one."""
        return not shard.has_lease and not (shard.is_closed and self.may_be_left_out(shard))

    def check_parents(self, shard_id: str) -> None:
        """Check that a shard is read only when each of its parents is finished (rule R1)."""
        for parent in self.shards[shard_id].parents:
            is_read = self.shards[parent].has_lease or not self.may_be_left_out(self.shards[parent])
            if is_read and self.shards[parent].checkpoint != Checkpoint.SHARD_END:
                self.report(f"the child {shard_id} starts before its parent {parent} is finished")

    # --- what is still to be done --------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether every record is processed, every closed shard is finished, and every open shard has a lease."""
        return not self.unprocessed and not any(
            shard.is_unfinished or self.lacks_lease(shard) for shard in self.shards.values()
        )

    @property
    def is_settled(self) -> bool:
        """Whether every processed record is also acked, so that a graceful stop repeats nothing."""
        acked = {
            (task.worker_id, shard_id): task.acked_to == len(self.shards[shard_id].marks)
            for (_, shard_id), task in self.open.items()
        }
        return self.is_complete and all(
            shard.is_closed
            or acked.get((shard.holder or "", shard_id))
            or shard.index_after(shard.checkpoint) == len(shard.marks)
            for shard_id, shard in self.shards.items()
        )

    def missing(self) -> str:
        """Return a text about what is not done yet."""
        missing = {
            shard_id: f"{len(shard.marks) - len(shard.processed)} of {len(shard.marks)} records, "
            f"checkpoint {shard.checkpoint}"
            for shard_id, shard in self.shards.items()
            if len(shard.processed) < len(shard.marks) or shard.is_unfinished or self.lacks_lease(shard)
        }
        return "; ".join(f"{shard_id}: {what}" for shard_id, what in missing.items())

    @property
    def generations(self) -> int:
        """How many generations of shards there are."""
        return max((generation(self.shards, shard_id) for shard_id in self.shards), default=0)

    def undeleted_leases(self) -> list[str]:
        """Return the finished shards whose leases exist although nothing depends on them any more."""
        return [shard_id for shard_id, shard in self.shards.items() if must_be_deleted(self.shards, shard)]
