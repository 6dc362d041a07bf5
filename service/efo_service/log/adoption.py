"""Adoption: an operator states that shards continue in new partitions of a log, without what was read of them before.

It is legitimate after a migration, after a hand-over from KCL, and after a recovery without a copy. efo cannot tell
these from a log that was lost, moved or mistaken for another. So it is a command, `efo log adopt`, and never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from efo.model import Lease
from efo_service.log import catalog
from efo_service.log.catalog import Adoption, adopt_shards, read_catalog, topic_directory
from efo_service.log.consistency import emptied, planned_adoptions, read_checked_catalog, refuse
from efo_service.relay.errors import SinkLockedError, TopicNotFoundError, os_errors
from efo_service.relay.storage import lock


def plan_adoption(root: Path, topic: str, leases: Iterable[Lease]) -> list[Adoption]:
    """Return what `adopt_into` would do: for shards that were read but are unknown, and for emptied partitions.

    Raises LogIncompleteError if the catalog lacks a partition that has segments: these are not lost.
    """
    leases = list(leases)
    try:
        catalog, problems = read_checked_catalog(root, topic)
    except TopicNotFoundError:
        return planned_adoptions(None, (), leases)
    refuse(problems)
    return planned_adoptions(catalog, emptied(root, topic, catalog), leases)


def adopt_into(root: Path, topic: str, stream: str, adoptions: Iterable[Adoption]) -> dict[str, int]:
    """Give the shards new partitions, durably; return the numbers by shard, see `adopt_shards`.

    Raises SinkLockedError if a writer has one of the emptied partitions open, LogOwnerError, LogError and SinkError.
    """
    adoptions = list(adoptions)
    with _locked(root, topic, (adoption.replaces for adoption in adoptions)):
        return adopt_shards(root, topic, stream, adoptions)


def continue_with(root: Path, topic: str, stream: str, created_at: float) -> None:
    """Let a topic go on with another stream of its name: see `with_new_stream`.

    Raises SinkLockedError if a writer has one of its partitions open, LogOwnerError, LogError and SinkError.
    """
    with _locked(root, topic, read_catalog(root, topic).partitions.values()):
        catalog.continue_with(root, topic, stream, created_at)


@contextmanager
def _locked(root: Path, topic: str, partitions: Iterable[int | None]) -> Iterator[None]:
    """Keep writers out of these partitions. Raises SinkLockedError."""
    with ExitStack() as locks:
        for partition in partitions:
            directory = topic_directory(root, topic) / str(partition)
            if partition is None or not directory.exists():
                continue
            with os_errors("open", directory):
                try:
                    locks.enter_context(lock(directory / "writer.lock", wait=False))
                except BlockingIOError as error:
                    raise SinkLockedError(f"{directory} is open in a writer: stop the relay first") from error
        yield
