"""The worker id of a process, if the configuration names none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from efo.consumer.worker_id import worker_slot
from efo_service.config.streams import TABLE, Configuration


@contextmanager
def with_worker_id(configuration: Configuration) -> Iterator[Configuration]:
    """Yield the configuration with a worker id that no other process on this host has, for as long as this one runs.

    The file that keeps it is in the directory of [leases] path, so that a container that keeps this directory keeps its
    worker id, and gets its leases back at once after a restart.
    """
    if configuration.worker_id is not None:
        yield configuration
        return
    first = configuration.first
    # The id of a process with several streams does not depend on which they are: they change while it runs.
    scope = (first.consumer.application, first.kinesis.stream_name) if not configuration.has_tables else (TABLE, "")
    with worker_slot(*scope, first.leases.path.parent) as worker_id:
        yield configuration.in_process(configuration.service, worker_id)
