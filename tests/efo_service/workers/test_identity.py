"""The worker id of a process, if the configuration names none."""

from __future__ import annotations

from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration
from efo_service.workers.identity import with_worker_id


def settings_in(directory, **leases):
    return Configuration.of(
        Settings(kinesis={"stream": "orders"}, leases={"path": directory / "leases.sqlite", **leases})
    )


def streams_in(directory, *streams):
    found = {name: Settings(kinesis={"stream": name}, leases={"path": directory / "leases.sqlite"}) for name in streams}
    return Configuration(found, has_tables=True)


def test_processes_on_one_host_have_different_ids(tmp_path):
    with with_worker_id(settings_in(tmp_path)) as one, with_worker_id(settings_in(tmp_path)) as other:
        assert one.worker_id != other.worker_id


def test_a_process_that_is_restarted_has_the_same_id(tmp_path):
    with with_worker_id(settings_in(tmp_path / "var")) as before:
        pass
    with with_worker_id(settings_in(tmp_path / "var")) as after:
        assert after.worker_id == before.worker_id


def test_all_streams_have_the_id_of_the_process_and_it_does_not_depend_on_them(tmp_path):
    with with_worker_id(streams_in(tmp_path, "a", "b")) as before:
        assert len({settings.leases.worker_id for settings in before.streams.values()} - {None}) == 1
    with with_worker_id(streams_in(tmp_path, "c")) as after:
        assert after.worker_id == before.worker_id


def test_a_configured_id_is_used_as_it_is(tmp_path):
    with with_worker_id(settings_in(tmp_path, worker_id="pod-7")) as configuration:
        assert configuration.worker_id == "pod-7"
    assert list(tmp_path.iterdir()) == []
