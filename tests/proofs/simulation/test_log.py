"""Worlds with the embedded log find the mistakes that only a crash shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice

import pytest

from efo_service.log import disk, disk_writer
from proofs.simulation.disk import DiskPath
from proofs.simulation.plan import plan
from proofs.simulation.run import run

pytestmark = pytest.mark.runner

MAX_WORLDS = 80


def log_seeds() -> Iterator[int]:
    """Yield the seeds of the worlds whose log meets power failures: first those that show the mistakes today."""
    return (seed for seed in chain((45, 33, 47), count()) if (log := plan(seed).log) is not None and log.faults.power)


def nothing(_argument: object) -> None:
    pass


def write_only(path: DiskPath, chunks: Iterable[bytes]) -> None:
    file = path.open("wb")
    for chunk in chunks:
        file.write(chunk)


@pytest.mark.parametrize(
    ("module", "name", "without_sync"),
    [(disk_writer, "write_file", write_only), (disk_writer, "sync_directory", nothing), (disk, "sync", nothing)],
)
def test_a_forgotten_sync_breaks_a_guarantee(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, without_sync: Callable[..., None]
) -> None:
    monkeypatch.setattr(module, name, without_sync)
    assert any(run(seed).problems for seed in islice(log_seeds(), MAX_WORLDS))
