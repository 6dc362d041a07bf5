"""Default worker ids: unique on a host, and the same again after a restart."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from efo.consumer.worker_id import worker_slot

HOLD = """
import sys
from pathlib import Path
from efo.consumer.worker_id import worker_slot
with worker_slot("app", "stream", Path(sys.argv[1])) as worker_id:
    print(worker_id, flush=True)
    sys.stdin.read()
"""


def test_an_id_names_the_host(tmp_path):
    with worker_slot("app", "stream", tmp_path) as worker_id:
        assert worker_id.startswith(f"{socket.gethostname()}-")


def test_consumers_that_run_at_the_same_time_have_different_ids(tmp_path):
    with ExitStack() as stack:
        ids = [stack.enter_context(worker_slot("app", "stream", tmp_path)) for _ in range(20)]
    assert len(set(ids)) == 20


def test_a_consumer_that_is_opened_again_has_the_same_id(tmp_path):
    with worker_slot("app", "stream", tmp_path) as first:
        pass
    with worker_slot("app", "stream", tmp_path) as second:
        assert second == first


def test_the_first_free_slot_is_taken(tmp_path):
    with worker_slot("app", "stream", tmp_path) as kept:
        with worker_slot("app", "stream", tmp_path) as closed:
            pass
        with worker_slot("app", "stream", tmp_path) as again:
            assert again == closed != kept


@pytest.mark.parametrize(("application", "stream"), [("other", "stream"), ("app", "other")])
def test_slots_belong_to_one_application_and_stream(tmp_path, application, stream):
    with worker_slot("app", "stream", tmp_path) as ours, worker_slot(application, stream, tmp_path) as theirs:
        assert ours != theirs


def test_machines_with_the_same_host_name_and_other_files_have_different_ids(tmp_path):
    with worker_slot("app", "stream", tmp_path / "a") as one, worker_slot("app", "stream", tmp_path / "b") as other:
        assert one != other


def test_a_process_that_is_killed_frees_its_id_for_the_next_one(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        held = process.stdout.readline().strip()
        with worker_slot("app", "stream", tmp_path) as meanwhile:
            assert meanwhile != held
        process.send_signal(signal.SIGKILL)
        process.wait()
    with worker_slot("app", "stream", tmp_path) as afterwards:
        assert afterwards == held


def test_without_a_directory_to_write_to_ids_are_unique(tmp_path):
    (tmp_path / "file").write_text("")
    directory = tmp_path / "file" / "below"
    with worker_slot("app", "stream", directory) as one, worker_slot("app", "stream", directory) as other:
        assert one != other


def test_a_damaged_slot_gets_a_new_token(tmp_path):
    with worker_slot("app", "stream", tmp_path):
        pass
    (slot,) = tmp_path.iterdir()
    slot.write_bytes(b"\xff")
    with worker_slot("app", "stream", tmp_path) as first:
        pass
    with worker_slot("app", "stream", tmp_path) as second:
        assert second == first


def test_by_default_the_slots_are_in_a_directory_of_the_user_among_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with worker_slot("app", "stream") as first:
        (slot,) = tmp_path.glob("*/*")
        assert slot.parent.name == f"efo-{os.getuid()}"
    with worker_slot("app", "stream") as second:
        assert second == first


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_slot_keeps_one_file_open_until_it_is_closed(tmp_path):
    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(worker_slot("app", "stream", tmp_path))
        assert open_files() == before + 5
    assert open_files() == before


def test_the_directory_is_created_with_those_above_it(tmp_path):
    with worker_slot("app", "stream", tmp_path / "var" / "efo") as first:
        pass
    with worker_slot("app", "stream", tmp_path / "var" / "efo") as second:
        assert second == first


def test_a_damaged_slot_of_the_right_length_gets_a_new_token(tmp_path):
    with worker_slot("app", "stream", tmp_path) as first:
        pass
    (slot,) = tmp_path.iterdir()
    for damage in ("ab/../cd", "a b", "abc"):
        slot.write_text(damage)
        with worker_slot("app", "stream", tmp_path) as worker_id:
            token = worker_id.rpartition("-")[2]
            assert token.isalnum()
            assert len(token) == len(first.rpartition("-")[2])


def test_a_directory_of_another_user_is_not_used(tmp_path, monkeypatch):
    """Its owner could give two processes the same id."""
    monkeypatch.setattr("os.getuid", lambda: tmp_path.stat().st_uid + 1)
    with worker_slot("app", "stream", tmp_path) as one, worker_slot("app", "stream", tmp_path) as other:
        assert one != other
    assert list(tmp_path.iterdir()) == []


def test_only_the_user_can_read_the_slots(tmp_path):
    directory = tmp_path / "slots"
    with worker_slot("app", "stream", directory):
        (slot,) = directory.iterdir()
        assert [path.stat().st_mode & 0o077 for path in (directory, slot)] == [0, 0]
