"""A consumer in a trio thread of its own, for applications that do not run on trio.

The thread is trio's alone. So an application that blocks does not hold up the renewal of leases (rule R10), and one
whose thread runs an event loop already, such as a Jupyter notebook, is not disturbed.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from typing import Any, Final

import trio

from efo.checks import shown
from efo.consumer.consumer import Consumer
from efo.consumer.opening import open_consumer
from efo.consumer.shard_task import ShardReader
from efo.doors.calls import SIDE, ApplicationSide
from efo.doors.mailbox import Mailbox
from efo.doors.options import OpenOptions, Stream
from efo.errors import ConfigurationError, EfoError
from efo.exception_groups import collapse_groups
from efo.kinesis.client import KinesisClient

run_trio: Final = trio.run
"""What runs trio in the thread; tests run it in virtual time."""


class Run:
    """One `Consumer.run` in the trio thread. `ended`: resolved when it has ended, with what it raised."""

    def __init__(self, post: Callable[..., None]) -> None:
        self.ended: Future[None] = Future()
        self.scope = trio.CancelScope()
        self._post = post

    def cancel(self) -> None:
        """Cancel it: running calls are cancelled if they can be, and what was acked is saved."""
        if not self.ended.done():
            self._post(self.scope.cancel)


class Engine:
    """Opens a consumer in a thread of its own.

    `side`: where the functions of the application are called. `opened`: resolved when the consumer is open, or could
    not be opened. `closed`: resolved when the thread has ended.
    """

    def __init__(self, stream: Stream, options: OpenOptions, side: ApplicationSide) -> None:
        if isinstance(stream, KinesisClient):
            raise ConfigurationError(
                f"stream={shown(stream)}: an open client belongs to the trio run that opened it: pass the stream's "
                "name, or efo.open_kinesis(...) without `async with`"
            )
        self.consumer: Consumer
        self.opened: Future[None] = Future()
        self.closed: Future[None] = Future()
        side.trio_side = Mailbox(self._wake)
        self._stream = stream
        self._options = options
        self.side = side
        self._has_begun = threading.Event()
        self._closing: trio.Event
        self._nursery: trio.Nursery
        self._everything = trio.CancelScope()
        self._runs: set[Run] = set()
        run = copy_context().run  # the application's context variables are those of its handlers too
        self._thread = threading.Thread(target=run, args=(self._thread_main,), name="efo", daemon=True)

    def start(self) -> None:
        """Start the thread. Then wait for `opened`."""
        self._thread.start()
        self._has_begun.wait()  # some milliseconds: from now on it can be cancelled

    def close(self) -> None:
        """Drain the consumer, wait for its runs, and release its leases. Then wait for `closed`."""
        self.post(self._close)

    def cancel(self) -> None:
        """Cancel everything; save what was acked and release the leases. Then wait for `closed`."""
        self.post(self._everything.cancel)

    def run(self, reader: ShardReader) -> Run:
        """Start `Consumer.run` in the trio thread. Raises EfoError if the consumer is closed."""
        run = Run(self.post)
        try:
            self.side.trio_side.post(self._start_run, run, reader)
        except trio.RunFinishedError:
            raise EfoError("the consumer is closed") from None
        return run

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the trio thread soon, in order. No effect if the consumer is closed."""
        self.side.post(function, *args)

    def _wake(self, run: Callable[[], None]) -> None:
        self.side.token.run_sync_soon(run)

    # --- in the trio thread ------------------------------------------------------------------------------------------

    def _thread_main(self) -> None:
        failure: BaseException | None = None
        try:
            run_trio(self._main)
        except BaseException as error:  # noqa: BLE001 - raised on the application's side
            failure = error
        self._has_begun.set()
        for run in self._runs:
            run.ended.set_exception(failure or EfoError("the consumer was closed while it was running"))
        if not self.opened.done():
            self.opened.set_exception(failure or EfoError("the consumer was closed while it was opening"))
            failure = None  # raised once
        _resolve(self.closed, failure)

    async def _main(self) -> None:
        self.side.token, self._closing = trio.lowlevel.current_trio_token(), trio.Event()
        self._has_begun.set()
        with collapse_groups(), self._everything:
            async with _open(self._stream, self._options) as self.consumer, trio.open_nursery() as self._nursery:
                self.opened.set_result(None)
                await self._closing.wait()

    def _close(self) -> None:
        self.consumer.drain()
        self._closing.set()

    def _start_run(self, run: Run, reader: ShardReader) -> None:
        self._runs.add(run)
        self._nursery.start_soon(self._run, run, reader)

    async def _run(self, run: Run, reader: ShardReader) -> None:
        SIDE.set(self.side)  # for the tasks of the shards, which inherit it
        failure: Exception | None = None
        try:
            with run.scope:
                await self.consumer.run(reader)
        except Exception as error:  # noqa: BLE001 - raised on the application's side
            failure = error
        self._runs.discard(run)
        _resolve(run.ended, failure)


def _resolve(future: Future[None], failure: BaseException | None) -> None:
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


@asynccontextmanager
async def _open(stream: Stream, options: OpenOptions) -> AsyncIterator[Consumer]:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(stream) if isinstance(stream, AbstractAsyncContextManager) else stream
        yield await stack.enter_async_context(open_consumer(client, **options))
