"""What a configuration that was read again changes."""

from __future__ import annotations

import pytest

from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration
from efo_service.streams.changes import find_changes


def stream(name: str, *, service=None, worker_id=None, **sections) -> Settings:
    return Settings(kinesis={"stream": name}, leases={"worker_id": worker_id}, service=service or {}, **sections)


def streams(*settings: Settings) -> Configuration:
    return Configuration({s.kinesis.stream: s for s in settings}, has_tables=True)


RUNNING = streams(stream("a", worker_id="w"), stream("b", worker_id="w"))


def test_the_same_configuration_changes_nothing():
    found = find_changes(RUNNING, streams(stream("a"), stream("b")))
    assert (found.added, found.removed, found.changed, found.unchanged) == ((), (), (), ("a", "b"))
    assert (found.process, found.refused, found.wanted) == ((), None, RUNNING)  # the worker id of the process stays


def test_streams_are_added_removed_and_changed():
    found = find_changes(RUNNING, streams(stream("b", relay={"commit_records": 3}), stream("c")))
    assert (found.added, found.removed, found.changed, found.unchanged) == (("c",), ("a",), ("b",), ())
    assert {settings.leases.worker_id for settings in found.wanted.streams.values()} == {"w"}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"consumer": {"initial_position": "latest"}}, ("a",)),
        ({"relay": {"retry_seconds": 3}}, ("a",)),
        ({"cloudwatch": {"level": "summary"}}, ("a",)),
        ({"pipeline": {"output": "x"}}, ()),  # it is not of the service
    ],
)
def test_a_stream_has_changed_if_a_setting_of_its_running_has(sections, expected):
    assert find_changes(RUNNING, streams(stream("a", **sections), stream("b"))).changed == expected


def test_settings_of_the_process_are_named_and_keep_their_values():
    service = {"port": 1, "drain_seconds": 3}
    found = find_changes(RUNNING, streams(stream("a", service=service, worker_id="x"), stream("b", service=service)))
    assert found.process == ("[service] port", "[service] drain_seconds", "[leases] worker_id")
    assert found.unchanged == ("a", "b")
    assert found.wanted.service == RUNNING.service


def test_a_file_that_begins_or_ceases_to_have_streams_is_refused():
    one = Configuration.of(stream("a"))
    assert "has no [streams] any more" in find_changes(RUNNING, one).refused
    assert "has [streams] now" in find_changes(one, RUNNING).refused


def test_records_on_stdout_cannot_begin_where_the_log_is():
    found = find_changes(RUNNING, streams(stream("a"), stream("b", relay={"sink": "jsonl"})))
    assert "where efo's log is" in found.refused
    stdout = streams(stream("b", relay={"sink": "jsonl"}))
    assert find_changes(stdout, stdout).refused is None
