"""`efo run --workers`: how many processes it starts."""

from __future__ import annotations

import socket

import pytest

from efo.consumer.processes import usable_cores
from efo_service.commands import run as command
from efo_service.exit_codes import Exit


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Return the numbers of workers that were started."""
    counts = []
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_LEASES__PATH", str(tmp_path / "leases.sqlite"))
    monkeypatch.setattr(command, "_supervise", lambda _settings, _config, count: counts.append(count) or Exit.OK)
    return counts


@pytest.mark.parametrize(("workers", "count"), [(2, 2), (7, 7), ("auto", usable_cores())])
def test_it_starts_the_given_number_of_workers_or_one_for_each_core(started, monkeypatch, workers, count):
    monkeypatch.setattr(command, "usable_cores", lambda: max(2, count))
    command.run(workers=workers)
    assert started == [max(2, count)]


def test_the_log_names_the_worker_also_with_a_generated_id(started, monkeypatch):
    named = []
    monkeypatch.setattr(command.logs, "name_worker", named.append)
    command.run(workers=2)
    assert named[0] is None  # not known before its file is locked
    assert named[1].startswith(socket.gethostname())


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_than_one_worker_is_rejected(workers):
    with pytest.raises(ValueError, match='1 or more, or "auto"'):
        command._check_workers(int, workers)
