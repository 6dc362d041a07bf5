"""Worlds with a SQLite file of leases find the mistakes that only a crash shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from random import Random

import pytest

from efo.leases.stores.sqlite import schema, store
from proofs.simulation import lease_file
from proofs.simulation.lease_images import (
    Image,
    failed_in_checkpoint,
    failed_in_commit,
    killed_in_checkpoint,
    killed_in_commit,
)
from proofs.simulation.plan import plan
from proofs.simulation.run import run

MAX_WORLDS = 40
OLD, NEW = b"a" * 1500, b"h" * 32 + b"b" * 2968
BEFORE, AFTER = Image(OLD, OLD, b"old index"), Image(NEW, NEW, b"new index")


def file_seeds() -> Iterator[int]:
    """Yield the seeds of the worlds whose lease file meets power failures."""
    return (seed for seed in count() if (file := plan(seed).lease_file) is not None and file.power)


def test_commits_that_are_not_synced_break_a_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(connection: sqlite3.Connection, path: Path) -> None:
        schema.prepare(connection, path)
        connection.execute("PRAGMA synchronous = NORMAL")

    monkeypatch.setattr(store, "prepare", prepare)
    assert any("last commits" in problem for seed in islice(file_seeds(), MAX_WORLDS) for problem in run(seed).problems)


def test_a_file_that_sqlite_finds_damaged_breaks_a_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    check = lease_file.LeaseFile._check

    def check_damaged(file: lease_file.LeaseFile, image: Image, *rows: lease_file.Rows | None) -> bool:
        middle = len(image.database) // 2
        damaged = image.database[:middle] + b"\xff" * (len(image.database) - middle)
        return check(file, replace(image, database=damaged, wal=None), *rows)  # type: ignore[arg-type]

    monkeypatch.setattr(lease_file.LeaseFile, "_check", check_damaged)
    assert any("damaged" in problem for problem in run(next(file_seeds())).problems)


@pytest.mark.parametrize("seed", range(30))
def test_a_killed_process_leaves_its_first_writes_but_not_all(seed: int) -> None:
    commit = killed_in_commit(BEFORE, AFTER, Random(seed))
    checkpoint = killed_in_checkpoint(BEFORE, AFTER, Random(seed))
    assert (commit.database, commit.index) == (OLD, b"old index")
    assert (checkpoint.wal, checkpoint.index) == (OLD, b"old index")
    for content in (commit.wal, checkpoint.database):
        assert content is not None
        written = next(n for n in range(len(NEW)) if n >= len(content) or content[n] != NEW[n])
        assert content == NEW[:written] + OLD[written:]


def test_a_power_failure_leaves_any_part_of_what_was_not_synced() -> None:
    images = [failed_in_commit(BEFORE, AFTER, Random(seed), is_synced=True) for seed in range(200)]
    logs = {image.wal for image in images if image.wal is not None}
    assert {image.database for image in images} == {OLD}
    assert NEW in logs
    assert NEW[:32] + OLD[32:] in logs  # the header is synced before the frames
    assert any(log[32:600].count(b"a") and log[600:].count(b"b") for log in logs)
    assert not any(log.startswith(OLD[:32]) and b"b" in log for log in logs)
    databases = {failed_in_checkpoint(BEFORE, AFTER, Random(seed)).database for seed in range(200)}
    assert {OLD, NEW} <= databases
    assert any(len(content) not in (len(OLD), len(NEW)) for content in databases)


def test_without_syncs_a_power_failure_may_leave_nothing_of_the_wal() -> None:
    logs = {failed_in_commit(BEFORE, AFTER, Random(seed), is_synced=False).wal for seed in range(200)}
    assert b"" in logs


def test_a_process_that_crashes_while_it_closes_its_connection_leaves_none_open() -> None:
    """In this world a worker leaves since its store fails, and crashes on the way."""
    assert run(973).problems == ()
