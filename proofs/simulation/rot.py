"""Bit rot: a log on the simulated disk, one bit of one of its files flips, and what efo then does with the log.

The log must refuse the file by its name, or be unharmed: what it reads is what was committed, in order, its writers
continue after the last record, and the other shards are not affected. Compaction must not write damage again as good.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final, get_args

from efo.errors import EfoError
from efo.model import Checkpoint, Record, checkpoint_of
from efo_service.log.catalog import CATALOG, read_catalog
from efo_service.log.consistency import check_topic
from efo_service.log.disk import DiskFiles
from efo_service.log.inspection import verify_topic
from efo_service.log.maintenance import LogMaintenance
from efo_service.log.partition_writer import open_partition
from efo_service.log.reader_offsets import READERS
from efo_service.log.retention import RetentionRules
from efo_service.log.segments import list_segments, read_parts
from efo_service.relay.errors import LogError, SinkError
from proofs.simulation.disk import Disk, DiskView
from proofs.simulation.story import RottedFile

STREAM: Final = "orders"
TOPIC: Final = "orders"
NOW: Final = 1_700_000_000.0
READER: Final = "query"


class RottingLog:
    """A log of one seed. `held`: the records of each shard. `problems`: what went wrong.

    `path`: the file that rots. `shard`: that of a segment that rots, "" for another file.
    """

    def __init__(self, seed: int) -> None:
        self.kind: RottedFile = "sealed"
        self.problems: list[str] = []
        self.held: dict[str, list[Record]] = {}
        self.rng = Random(f"rot {seed}")
        self.disk = Disk(lambda: NOW, self.rng)
        self.root = DiskView(self.disk).root
        self.path: Any = None
        self.shard = ""

    def run(self) -> None:
        """Write the log, let a bit rot, and check what efo does."""
        self._write()
        self._rot()
        is_found = self._is_found()
        if self.shard and not is_found:
            self._report("the verification does not name the file")
        self._check_reading(is_found=is_found)
        self._check_writing()
        try:
            self._maintain()
        except SinkError as error:
            self._check_named(error)
        self._check_reading(is_found=is_found)
        if self.shard and not self._is_found():
            self._report("maintenance removed the damaged file, or wrote its records again")

    def _report(self, problem: str) -> None:
        self.problems.append(f"bit rot in {self.path}: {problem}")

    # --- the log -------------------------------------------------------------------------------------------

    def _write(self) -> None:
        for number in range(self.rng.randint(1, 3)):
            self.held[f"shardId-{number:012}"] = []
        for shard in [shard for shard in self.held for _ in range(self.rng.randint(2, 6))]:
            self._append(shard)
        if self.rng.random() < 0.3:
            self._maintain()
        ends = {number: self.rng.randint(0, len(self.held[shard])) for shard, number in self._partitions().items()}
        readers = self.root / TOPIC / READERS
        readers.mkdir()
        with (readers / f"{READER}.json").open("w") as file:  # `commit_reader` opens a real file, with a mode
            file.write(json.dumps({"format": 1, "offsets": ends, "committed_at": NOW}))

    def _append(self, shard: str) -> None:
        held = self.held[shard]
        start = 10**20 + 1000 * len(held)
        records = [
            Record(str(start + n), NOW, self.rng.randbytes(self.rng.randint(0, 60)), f"key {n}")
            for n in range(self.rng.randint(1, 8))
        ]
        checkpoint = checkpoint_of(held[-1]) if held else Checkpoint.TRIM_HORIZON
        writer = open_partition(DiskFiles(self.root), TOPIC, STREAM, shard, lambda: NOW, checkpoint=checkpoint)
        try:
            if writer.position != (checkpoint if held else None):
                self._report(f"the writer of {shard} continues after {writer.position}, not after {checkpoint}")
            writer.append(records)
            held += records
        finally:
            writer.close()

    def _maintain(self) -> None:
        LogMaintenance(DiskFiles(self.root, grace=5.0), TOPIC, RetentionRules(), fan_in=2).run(NOW)

    def _partitions(self) -> dict[str, int]:
        return dict(read_catalog(DiskFiles(self.root), TOPIC).partitions)

    def _directory(self, partition: int) -> Any:
        return self.root / TOPIC / str(partition)

    def _rot(self) -> None:
        self.kind = self.rng.choice(get_args(RottedFile))
        if self.kind == "catalog":
            self.path = self.root / TOPIC / CATALOG
        elif self.kind == "reader":
            self.path = self.root / TOPIC / READERS / f"{READER}.json"
        else:
            self.shard, partition = self.rng.choice(sorted(self._partitions().items()))
            segments = list_segments(self._directory(partition))
            if len(segments) == 1:
                self.kind = "newest"
            self.path = (segments[-1] if self.kind == "newest" else self.rng.choice(segments[:-1])).path
        self.disk.rot(self.path.parts)

    # --- what efo does -------------------------------------------------------------------------------------

    def _is_found(self) -> bool:
        try:
            problems = verify_topic(DiskFiles(self.root), TOPIC).problems
        except LogError as error:
            problems = [str(error)]
        if self.kind == "reader":
            return any(READER in problem for problem in problems)
        # A catalog may be contradicted by any file or directory of its topic.
        return any(str(self.path) in problem or self.kind == "catalog" for problem in problems)

    def _check_reading(self, *, is_found: bool) -> None:
        try:
            partitions = self._partitions()
        except LogError as error:
            self._check_named(error)
            return
        if partitions.keys() != self.held.keys() and not is_found:
            self._report("shards are missing in the catalog, and the verification finds nothing")
        for shard, number in partitions.items():
            self._check_shard(shard, self._directory(number))

    def _check_shard(self, shard: str, directory: Any) -> None:
        expected = [(record.sequence_number, record.data) for record in self.held.get(shard, [])]
        found: list[tuple[str, bytes]] = []
        try:
            for _, batch in read_parts(directory, 0, len(expected), (STREAM, shard)):
                found += [(_sequence(row["headers"]), row["value"]) for row in batch.to_pylist()]
        except SinkError as error:
            if shard != self.shard and self.kind != "catalog":
                self._report(f"reading {shard} fails, which is not damaged: {error}")
            elif self.kind != "catalog":
                self._check_named(error)
        else:
            if shard == self.shard:
                self._report("its shard is read to the end")
            if found != expected:
                self._report(f"{shard} has other records than were committed")
        if found != expected[: len(found)]:
            self._report(f"{shard} has other records than were committed before the error")

    def _check_writing(self) -> None:
        """Check that each shard continues after its last record, or is refused. The service checks the topic first."""
        try:
            check_topic(DiskFiles(self.root), TOPIC)
        except EfoError as error:
            if self.kind != "catalog":
                self._report(f"the whole topic is refused: {error}")
            return
        for shard in self.held:
            try:
                self._append(shard)
            except EfoError as error:
                if self.kind == "catalog":
                    continue
                if shard != self.shard or self.kind != "newest":
                    self._report(f"the writer of {shard} is refused: {error}")
                else:
                    self._check_named(error)

    def _check_named(self, error: EfoError) -> None:
        if str(self.path) not in str(error):
            self._report(f"the error does not name the file: {error}")


def _sequence(headers: list[dict[str, Any]]) -> str:
    (value,) = (header["value"] for header in headers if header["key"] == "kinesis.sequence")
    return str(value, "ascii")
