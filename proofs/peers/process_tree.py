"""CPU time and memory of a process with all its descendants, from /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Usage:
    """`cpu_seconds`: user and system time, also of descendants that ended. `rss_bytes`: resident memory now."""

    cpu_seconds: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """What is used here of one line of /proc/PID/stat. `ticks`: of the process and of the children it waited for."""

    pid: int
    parent: int
    ticks: int
    pages: int


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat (proc(5)). The name of the program, in parentheses, may contain anything."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    # In proc(5), counted from 1: 4 ppid, 14 to 17 utime, stime, cutime, cstime, 24 rss. Here the state, 3, is at 0.
    return ProcessStat(int(pid), int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))


def tree_of(root: int, stats: Mapping[int, ProcessStat]) -> list[ProcessStat]:
    """Return the process and all its descendants that exist."""
    children: dict[int, list[ProcessStat]] = {}
    for stat in stats.values():
        children.setdefault(stat.parent, []).append(stat)
    found = [stats[root]] if root in stats else []
    for stat in found:
        found.extend(children.get(stat.pid, ()))
    return found


def usage_of(root: int) -> Usage:
    """Return what a process and its descendants use."""
    tree = tree_of(root, _read_all())
    return Usage(sum(stat.ticks for stat in tree) / _TICKS, sum(stat.pages for stat in tree) * _PAGE)


def _read_all() -> dict[int, ProcessStat]:
    stats = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stats[int(entry.name)] = parse_stat((entry / "stat").read_text(errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended meanwhile
    return stats


def descendants(root: int) -> list[int]:
    """Return the ids of a process and of all its descendants, each after its own descendants."""
    return [stat.pid for stat in reversed(tree_of(root, _read_all()))]
