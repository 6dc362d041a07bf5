"""Sinks that fail, are slow, or freeze: what an operator is paged for is that records do not arrive."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from proofs.incidents.disks import small_disk
from proofs.incidents.incident import Truth, in_lines, in_log, running
from proofs.situations.situation import Cases, Outcome

cases = Cases("sinks", seconds=240)

_NOT_COMMITTED = "EfoShardsUncommitted"
_UNCOMMITTED = r'efo_shard_status\{.*efo_shard_condition="uncommitted".*\} 1'


def _full(path: Path) -> Truth:
    return Truth(
        f"not committed: .*no space to .*{path}.*free space",
        "sink_outage_began.*no space",
        _UNCOMMITTED,
        alert=_NOT_COMMITTED,
    )


@cases.case("not ready within 10 s with the path and the remedy; all arrives when there is space again")
def the_disk_of_the_log_is_full_under_a_trickle() -> Outcome:
    with small_disk() as disk, running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path) as one:
        one.play(disk.fill, _full(disk.path))
        is_alive = one.service.process.poll() is None
        disk.free()
        return one.outcome(is_right=is_alive)


@cases.case("the same words as before the restart")
def a_restart_while_the_disk_of_the_log_is_full() -> Outcome:
    with small_disk() as disk, running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path) as one:
        disk.fill()
        one.until(lambda: one.readyz()[0] != 200, 20)
        one.play(one.restart, _full(disk.path), limit=20)
        disk.free()
        return one.outcome()


@cases.case("not ready within 10 s with the path and the remedy")
def the_disk_of_the_json_lines_is_full() -> Outcome:
    with small_disk() as disk:
        file = disk.path / "lines.jsonl"
        with running(partial(in_lines, file), RELAY__SINK="jsonl", RELAY__JSONL_FILE=file) as one:
            one.play(disk.fill, _full(file))
            disk.free()
            return one.outcome()


@cases.case("the process ends with exit 69 after the time that the setting says, and not before it was told")
def a_full_disk_with_a_limit_for_retries() -> Outcome:
    with (
        small_disk() as disk,
        running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path, RELAY__RETRY_SECONDS=12) as one,
    ):
        one.play(disk.fill, _full(disk.path))
        one.play(lambda: None, Truth(ends=69), limit=20)
        disk.free()
        one.restart()
        return one.outcome()
