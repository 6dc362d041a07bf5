"""The driver of bit rot finds a log that does not check its files. `test_seeds.py` runs its seeds."""

from __future__ import annotations

from contextlib import suppress

import pytest

from efo_service.log import disk, disk_writer, segments
from efo_service.relay.errors import LogOwnerError
from proofs.simulation.rot import RottingLog

pytestmark = pytest.mark.runner


def problems(seed: int) -> list[str]:
    log = RottingLog(seed)
    log.run()
    return log.problems


def test_the_seeds_damage_every_kind_of_file() -> None:
    logs = [RottingLog(seed) for seed in range(20)]
    for log in logs:
        log.run()
    assert {log.kind for log in logs} == {"sealed", "newest", "catalog", "reader"}


def test_segments_without_a_checksum_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (disk_writer, segments):
        monkeypatch.setattr(module, "crc32", lambda _data, _crc=0: 0)
    found: list[str] = []
    for seed in range(100, 140):
        with suppress(OSError, ValueError, SystemError):  # Arrow finds some damage by itself
            found += problems(seed)
    assert any("other records than were committed" in problem for problem in found)
    assert any("the verification does not name the file" in problem for problem in found)


def test_a_topic_that_is_refused_for_one_damaged_segment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LogOwnerError("the damaged bytes name another owner")

    monkeypatch.setattr(disk.DiskPartition, "check", refuse)
    assert any("the whole topic is refused" in problem for seed in range(8) for problem in problems(seed))
