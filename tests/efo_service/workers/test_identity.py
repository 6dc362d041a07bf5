"""The worker id of a process, if the configuration names none."""

from __future__ import annotations

from efo_service.config.settings import Settings
from efo_service.workers.identity import with_worker_id


def settings_in(directory, **leases):
    return Settings(kinesis={"stream": "orders"}, leases={"path": directory / "leases.sqlite", **leases})


def test_processes_on_one_host_have_different_ids(tmp_path):
    with with_worker_id(settings_in(tmp_path)) as one, with_worker_id(settings_in(tmp_path)) as other:
        assert one.leases.worker_id != other.leases.worker_id


def test_a_process_that_is_restarted_has_the_same_id(tmp_path):
    with with_worker_id(settings_in(tmp_path / "var")) as before:
        pass
    with with_worker_id(settings_in(tmp_path / "var")) as after:
        assert after.leases.worker_id == before.leases.worker_id


def test_a_configured_id_is_used_as_it_is(tmp_path):
    with with_worker_id(settings_in(tmp_path, worker_id="pod-7")) as settings:
        assert settings.leases.worker_id == "pod-7"
    assert list(tmp_path.iterdir()) == []
