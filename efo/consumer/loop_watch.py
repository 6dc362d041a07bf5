"""Tells an application that it blocks trio's event loop, and where: then no lease is renewed and no shard is read.

One thread for all event loops of the process asks each loop once a second for a sign of life. Only when one is late
does it look at the loop's stack. It writes to the log itself, since the loop can call no observer while it is blocked.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Final

import trio

from efo.consumer.advice import Advice
from efo.third_party_errors import places_on

BLOCKED_AFTER: Final = 5.0
"""Seconds without a sign of life: half of the default fail-over time."""
INTERVAL: Final = 1.0
_REMEDY: Final = (
    "meanwhile no lease is renewed and no shard is read, and other workers take the shards; wrap a handler that blocks"
    " as efo.in_thread(handler), or await trio.to_thread.run_sync(function)"
)


class _Loop:
    """An event loop, and when it last gave a sign of life. `users`: the advice of each consumer in it."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self.thread = threading.get_ident()
        self.token = token
        self.seen_at = monotonic()
        self.users: list[Advice] = []
        self.where = ""
        self.is_reported = self.is_waiting = False

    def alive(self) -> None:
        """Give a sign of life: called in the loop."""
        if self.is_reported:
            logging.getLogger("efo").warning("trio's event loop runs again; it was blocked for %.0f s", self.age())
            for advice in self.users:
                advice.keep(
                    "blocked_loop", f"trio's event loop was blocked for {self.age():.0f} s at {self.where}", _REMEDY
                )
        self.seen_at, self.is_reported, self.is_waiting = monotonic(), False, False

    def age(self) -> float:
        """Return the seconds since the last sign of life."""
        return monotonic() - self.seen_at

    def look(self) -> None:
        """Ask for a sign of life, or tell that there is none. Called in the thread that watches."""
        if not self.is_waiting:
            self.is_waiting, self.seen_at = True, monotonic()
            self.token.run_sync_soon(self.alive)
        elif self.age() > BLOCKED_AFTER and not self.is_reported:
            self.is_reported = True
            frame = sys._current_frames().get(self.thread)  # noqa: SLF001 - the only way to see another thread's stack
            self.where = ", called at ".join(places_on(frame))
            logging.getLogger("efo").warning(
                "trio's event loop has been blocked for %.0f s at %s: %s", self.age(), self.where, _REMEDY
            )


class _Watch:
    """The thread, and the loops that it watches. It ends when there are none."""

    def __init__(self) -> None:
        self._loops: dict[trio.lowlevel.TrioToken, _Loop] = {}
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, token: trio.lowlevel.TrioToken, advice: Advice) -> None:
        with self._lock:
            self._loops.setdefault(token, _Loop(token)).users.append(advice)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="efo loop watch", daemon=True).start()

    def remove(self, token: trio.lowlevel.TrioToken, advice: Advice) -> None:
        with self._lock:
            self._loops[token].users.remove(advice)
            if not self._loops[token].users:
                del self._loops[token]

    def _run(self) -> None:
        while True:
            asked_at = monotonic()
            sleep(INTERVAL)
            with self._lock:
                loops = list(self._loops.values())
                self._is_running = bool(loops)
            if not loops:
                return
            stood_still = monotonic() - asked_at > 2 * INTERVAL  # the process was stopped, or has no CPU time
            for loop in loops:
                if stood_still:
                    loop.seen_at = monotonic()
                with suppress(trio.RunFinishedError):
                    loop.look()


_WATCH: Final = _Watch()


@contextmanager
def watched_loop(advice: Advice) -> Iterator[None]:
    """Watch this event loop within the block. A loop in virtual time, which tests use, is not watched.

    `advice`: keeps what was found.
    """
    if not type(trio.lowlevel.current_clock()).__module__.startswith("trio._core"):
        yield
        return
    token = trio.lowlevel.current_trio_token()
    _WATCH.add(token, advice)
    try:
        yield
    finally:
        _WATCH.remove(token, advice)
