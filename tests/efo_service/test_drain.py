from __future__ import annotations

import signal

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from efo_service.drain import Drain
from efo_service.errors import DrainDeadlineError


class Work:
    """Work that finishes `seconds` after it was asked to. `events` lists what happened."""

    def __init__(self, drain: Drain, *, seconds: float) -> None:
        self.events: list[str] = []
        self._drain = drain
        self._seconds = seconds
        self._asked = trio.Event()

    async def run(self, *, begins: bool = True) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._drain.watch, lambda: self.events.append("stop"))
            nursery.start_soon(self._send_signals)
            with self._drain.scope:
                if begins:
                    self._drain.finish_with(self._finish)
                await self._asked.wait()
                await trio.sleep(self._seconds)
                self.events.append("finished")
            nursery.cancel_scope.cancel()
        self._drain.check()

    def _finish(self) -> None:
        self.events.append("asked")
        self._asked.set()

    signals = (signal.SIGTERM,)

    async def _send_signals(self) -> None:
        for number in self.signals:
            await wait_all_tasks_blocked()
            signal.raise_signal(number)


async def test_work_that_finishes_before_the_deadline_is_not_cut_short(autojump_clock):
    work = Work(Drain(25), seconds=24)
    await work.run()
    assert work.events == ["stop", "asked", "finished"]
    assert trio.current_time() == pytest.approx(24)


async def test_the_deadline_cuts_the_drain_short(autojump_clock):
    work = Work(Drain(25), seconds=26)
    with pytest.raises(DrainDeadlineError, match="drain_seconds"):
        await work.run()
    assert work.events == ["stop", "asked"]
    assert trio.current_time() == pytest.approx(25)


async def test_a_second_signal_cuts_the_drain_short():
    work = Work(Drain(25), seconds=24)
    work.signals = (signal.SIGTERM, signal.SIGINT)
    with pytest.raises(DrainDeadlineError):
        await work.run()
    assert work.events == ["stop", "asked"]


async def test_a_signal_before_the_work_has_begun_cancels_it_without_an_error():
    work = Work(Drain(25), seconds=0)
    await work.run(begins=False)
    assert work.events == ["stop"]


async def test_finish_with_asks_at_once_if_the_drain_has_already_begun(autojump_clock):
    drain = Drain(25)
    drain._is_stopping = True
    asked = []
    drain.finish_with(lambda: asked.append(True))
    assert asked == [True]
