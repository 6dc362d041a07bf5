"""The worker id of a process, if the configuration names none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from efo.consumer.worker_id import worker_slot
from efo_service.config.settings import Settings


@contextmanager
def with_worker_id(settings: Settings) -> Iterator[Settings]:
    """Yield the settings with a worker id that no other process on this host has, for as long as this one runs.

    The file that keeps it is in the directory of [leases] path, so that a container that keeps this directory keeps its
    worker id, and gets its leases back at once after a restart.
    """
    if settings.leases.worker_id is not None:
        yield settings
        return
    directory = settings.leases.path.parent
    with worker_slot(settings.consumer.application, settings.kinesis.stream_name, directory) as worker_id:
        leases = settings.leases.model_copy(update={"worker_id": worker_id})
        yield settings.model_copy(update={"leases": leases})
