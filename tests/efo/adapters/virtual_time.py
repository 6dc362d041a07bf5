"""Virtual time beside the threads of an application: the clock jumps when no thread has anything to do.

trio's own clock jumps after some milliseconds in which trio had nothing to do. On a busy machine the application's
thread waits longer than that for a processor, and its deadlines would pass before it has said a word.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

LOOK: Final = 0.005
"""Seconds without anything to do for trio, after which it looks at the other threads."""
MAX_LOOKS: Final = 2_000
"""A thread that has run at so many looks in succession polls, and is not waited for."""
_TASKS: Final = Path("/proc/self/task")


def run_in_virtual_time(main: Callable[[], Awaitable[Any]]) -> None:
    clock = trio.testing.MockClock()

    async def jump() -> None:
        threads = OtherThreads()
        looks = 0
        while True:
            await trio.testing.wait_all_tasks_blocked(LOOK)
            looks += 1
            if threads.are_idle() or looks > MAX_LOOKS:
                looks = 0
                seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
                if 0 < seconds < math.inf:
                    clock.jump(seconds)

    async def beside() -> Any:
        trio.lowlevel.spawn_system_task(jump)
        return await main()

    trio.run(beside, clock=clock)


class OtherThreads:
    """The threads of this process but the calling one. `tasks`: where the kernel tells of them, one folder each."""

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._ran: dict[str, bytes] = {}

    def are_idle(self) -> bool:
        """Return whether each sleeps, and none has run since the last look.

        Who waits for the interpreter's lock, which the caller has, sleeps too. But it runs before the next look, as the
        lock is free between two. Without Linux' files nothing is known, and all are idle.
        """
        own, before, sleeping = str(threading.get_native_id()), self._ran, True
        self._ran = {}
        for task in self._tasks.iterdir() if self._tasks.exists() else ():
            if task.name == own:
                continue
            try:
                state = (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
                self._ran[task.name] = (task / "schedstat").read_bytes().split()[0]
            except OSError:  # it ends, or the kernel keeps no such figures
                continue
            sleeping = sleeping and state == b"S"
        return sleeping and self._ran == before
