from __future__ import annotations

import threading

import pytest
import trio

from tests.efo.adapters.virtual_time import OtherThreads, run_in_virtual_time


@pytest.fixture
def tasks(tmp_path):
    """Return a function that lets a thread of this id be in this state, and have run for so long."""

    def write(thread, state, ran):
        folder = tmp_path / str(thread)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{thread} (a) name) {state} 1 1")
        (folder / "schedstat").write_text(f"{ran} 10 3\n")

    write.folder = tmp_path
    return write


def test_a_thread_that_waits_for_the_processor_is_not_idle(tasks):
    threads = OtherThreads(tasks.folder)
    looks = []
    for state in "SSRDS":
        tasks(1, state, 100)
        looks.append(threads.are_idle())
    assert looks == [False, True, False, False, True]


def test_a_thread_that_has_run_since_the_last_look_is_not_idle(tasks):
    threads = OtherThreads(tasks.folder)
    looks = []
    for ran in (100, 100, 101, 101):
        tasks(1, "S", ran)
        looks.append(threads.are_idle())
    assert looks == [False, True, False, True]


def test_the_own_thread_does_not_count(tasks):
    tasks(threading.get_native_id(), "R", 100)
    assert OtherThreads(tasks.folder).are_idle()


def test_without_the_files_of_linux_all_are_idle(tmp_path):
    assert OtherThreads(tmp_path / "none").are_idle()


def test_the_clock_jumps_to_each_deadline():
    at = []

    async def main():
        for seconds in (3600.0, 0.5):
            await trio.sleep(seconds)
            at.append(trio.current_time())

    run_in_virtual_time(main)
    assert at == [3600.0, 3600.5]


def test_the_clock_stands_still_while_a_thread_works():
    """It uses more time than any patience, and no deadline passes."""
    at = []

    async def main():
        def work():
            sum(range(20_000_000))

        before = trio.current_time()
        with trio.move_on_after(60):
            await trio.to_thread.run_sync(work, abandon_on_cancel=True)
        at.append(trio.current_time() - before)

    run_in_virtual_time(main)
    assert at == [0.0]
