"""What a power failure leaves: each file is synced before its name appears, and its directory afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from efo_service.log.catalog import allocate_partition, mark_written
from efo_service.log.compaction import compact
from efo_service.log.disk import DiskFiles
from efo_service.log.fencing import begin_epoch
from efo_service.log.reader_offsets import commit_reader, remove_reader
from efo_service.log.segments import list_segments


class Disk:
    """Notes, in order, what is synced, renamed and created: the inode of the file or directory; the path of a name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[tuple[str, int]] = []
        self.renamed: list[Path] = []
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name)))
        rename = Path.rename

        def renaming(path: Path, target: Path) -> Path:
            self.steps.append(("rename", path.stat().st_ino))
            self.renamed.append(target)
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", renaming)
        mkdir = Path.mkdir

        def creating(path: Path, *arguments: Any, **options: Any) -> None:
            mkdir(path, *arguments, **options)
            self.steps.append(("mkdir", path.stat().st_ino))

        monkeypatch.setattr(Path, "mkdir", creating)

    def _noting(self, call):
        def synced(descriptor: int) -> None:
            self.steps.append(("sync", os.fstat(descriptor).st_ino))
            call(descriptor)

        return synced

    def check(self, *names: str) -> None:
        """Check that files of these names appeared, each of them durably."""
        assert [path.name for path in self.renamed] == [*names]
        renames = [at for at, (kind, _) in enumerate(self.steps) if kind == "rename"]
        for at, path in zip(renames, self.renamed, strict=True):
            inode = self.steps[at][1]
            assert ("sync", inode) in self.steps[:at], f"{path} appears before its content is durable"
            assert ("sync", path.parent.stat().st_ino) in self.steps[at:], f"the name {path} is not durable"


@pytest.fixture
def disk(monkeypatch) -> Iterator[Disk]:
    return Disk(monkeypatch)


def test_an_epoch_is_durable_before_its_writer_writes(tmp_path, disk) -> None:
    begin_epoch(tmp_path)
    disk.check("epoch")


def test_a_catalog_is_durable_with_the_directories_above_it(tmp_path, disk) -> None:
    allocate_partition(DiskFiles(tmp_path / "log"), "t", "s", "x")
    disk.check("catalog.json")
    assert ("sync", (tmp_path / "log").stat().st_ino) in disk.steps
    mark_written(DiskFiles(tmp_path / "log"), "t", "s", 0)
    disk.check("catalog.json", "catalog.json")


def test_the_offsets_of_a_reader_are_durable(tmp_path, disk) -> None:
    (tmp_path / "t").mkdir()
    commit_reader(DiskFiles(tmp_path), "t", "billing", {0: 5}, 0.0)
    disk.check("billing.json")
    disk.steps.clear()
    remove_reader(DiskFiles(tmp_path), "t", "billing")
    assert disk.steps == [("sync", (tmp_path / "t" / "readers").stat().st_ino)]


def test_segments_and_the_directory_of_a_new_partition_are_durable(open_writer, make_records, directory, disk) -> None:
    writer = open_writer()
    created_at = disk.steps.index(("mkdir", directory.stat().st_ino))
    assert ("sync", directory.parent.stat().st_ino) in disk.steps[created_at:]
    for start in (0, 3):
        writer.append(make_records(3, start))
    segments = list_segments(directory)
    whole = compact(segments)
    disk.check("catalog.json", "epoch", segments[0].path.name, "catalog.json", segments[1].path.name, whole.path.name)
    writer.close()
