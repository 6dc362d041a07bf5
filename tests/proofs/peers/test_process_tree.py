from __future__ import annotations

import os
import subprocess
import sys

import pytest

from proofs.peers.process_tree import ProcessStat, descendants, parse_stat, tree_of, usage_of

FIELDS = "S 7 1 1 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 5 0 12345 1000000 250 18446744073709551615 1 1 0"


@pytest.mark.parametrize("name", ["java", "tmux: server", "a) S 9 (b"])
def test_a_stat_line_is_parsed_whatever_the_name_of_the_program(name):
    assert parse_stat(f"42 ({name}) {FIELDS}") == ProcessStat(pid=42, parent=7, ticks=110, pages=250)


def test_a_tree_has_all_descendants_and_nobody_else():
    stats = {pid: ProcessStat(pid, parent, 0, 0) for pid, parent in {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}.items()}
    assert [stat.pid for stat in tree_of(10, stats)] == [10, 11, 12]
    assert tree_of(99, stats) == []


def test_this_process_uses_memory_and_time():
    usage = usage_of(os.getpid())
    assert usage.rss_bytes > 1_000_000
    assert usage.cpu_seconds > 0


def test_the_descendants_of_a_process_come_before_it():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert descendants(os.getpid())[-1] == os.getpid()
        assert child.pid in descendants(os.getpid())
        assert descendants(child.pid) == [child.pid]
        child.communicate(b"\n")
