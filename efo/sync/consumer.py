"""The consumers behind the synchronous surface: by a handler, or as one iteration over all shards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Self

from efo.adapters.consumer import AdaptedReading, C, StreamConsumer
from efo.adapters.engine import Engine, Run
from efo.adapters.opening import AdaptedStreams, Clients
from efo.checks import check_type
from efo.consumer.consumer import Consumer as TrioConsumer
from efo.consumer.handlers.misuse import check_surface
from efo.consumer.streams.consumer import MultiStreamConsumer as TrioMultiStreamConsumer
from efo.model import Batch, Record
from efo.sync.caller_side import CallerSide, Wakeup
from efo.sync.handler import Handler, ProcessorReader


class CallerReading(AdaptedReading[C]):
    """Reads shards in the calling thread.

    Iterate over it: `for batch in consumer`, then `consumer.ack(batch)`; or `consumer.run(reader)`.
    """

    def __init__(self, engine: Engine[C], side: CallerSide) -> None:
        super().__init__(engine)
        self._side = side
        self._iteration: Run[None] | None = None
        self._wakeup = Wakeup()
        self._turn = threading.Lock()  # which each thread that iterates has while it waits
        self._merge.on_change = self._notify
        self._has_ended = False
        self._cursors: dict[int, _Cursor] = {}  # of the threads that take single records
        self._taking_over = threading.Lock()

    def run(self, reader: Handler | ProcessorReader) -> None:
        """Read shards until `drain`, which another thread or a signal handler calls: as `efo.Consumer.run`.

        The handler's functions are called in this thread, one after the other. Ctrl-C interrupts the one that runs and
        stops: its batch is not acked, what was acked is saved, and KeyboardInterrupt is raised. Raises what the handler
        raises, and EfoError.
        """
        check_surface(reader, "efo.sync")
        expected = "efo.sync.Handler(handler) or efo.sync.ProcessorReader(Processor)"
        check_type("reader", reader, (Handler, ProcessorReader), expected)
        run = self._claim(Run[None](self._engine.post))
        self._side.serve(run, lambda: self._engine.begin(run, self._engine.value.run, reader.__call__))

    def __iter__(self) -> Self:
        """Iterate over the batches of all shards. It ends when the consumer drains, and may be continued.

        Several threads may iterate: each batch goes to one of them, and a shard's next one may go to another at the
        same time. A batch that is not acked when the consumer is closed is delivered again, to the next consumer that
        reads its shard. Raises EfoError.
        """
        return self

    def __next__(self) -> Batch:
        thread = threading.get_ident()
        cursor = self._cursors.get(thread)
        batch = self._next_whole() if cursor is None or cursor.is_at_end else cursor.batch
        # Python runs signal handlers at calls and at loops: so Ctrl-C comes before these lines or after `return`.
        if cursor is not None:
            del self._cursors[thread]
        self._merge.taking[thread] = None
        return batch

    def _next_whole(self) -> Batch:
        """Take the next batch. The caller sets its `taking` to None, with no call between that and what it returns."""
        self._side.check_process()  # in a forked child, a thread that is not there may have the lock
        with self._turn:
            batch = self._next()
        if batch is None:
            raise StopIteration
        return batch

    def _next(self) -> Batch | None:
        """Wait for the next batch, and take it; None at the end."""
        iteration = self._iteration or self._begin()
        while not self._has_ended:
            if (batch := self._merge.take()) is not None:
                return batch
            if self._merge.has_ended or iteration.ended.done():
                self._has_ended = True
                if iteration.ended.done():
                    iteration.ended.result()
            else:
                self._wakeup.sleep_unless(lambda: self._merge.is_ready or iteration.ended.done())
        return None

    def _notify(self) -> None:
        self._side.trio_side.at_end_of_step(self._wakeup.wake)

    def _begin(self) -> Run[None]:
        self._iteration = self._claim(Run[None](self._engine.post))
        self._engine.begin(self._iteration, self._engine.value.run, self._merge.read)
        self._iteration.ended.add_done_callback(lambda _ended: self._wakeup.wake())
        return self._iteration

    def records(self) -> Iterator[tuple[Record, Batch]]:
        """Iterate over the records of all shards, each with its batch: then `consumer.ack_record(batch, record)`.

        A loop that is left within a batch is continued at its next record, by the next `records()` of this thread, or
        of any if this one has ended. An iteration over batches has the whole batch again.
        """
        return _Records(self._cursor)

    def _cursor(self) -> _Cursor:
        """Return this thread's batch of which records are left."""
        thread = threading.get_ident()
        cursor = self._cursors.get(thread)
        if cursor is None or cursor.is_at_end:
            self._take_over(thread)
            cursor = self._cursors.get(thread)
        if cursor is None or cursor.is_at_end:
            cursor = _Cursor(self._next_whole())
            self._cursors[thread] = cursor
            self._merge.taking[thread] = None
        return cursor

    def _take_over(self, thread: int) -> None:
        """Give a thread the rest of a batch that another thread has left which does not exist any more."""
        with self._taking_over:
            alive = {other.ident for other in threading.enumerate()}
            for other, cursor in list(self._cursors.items()):
                if other not in alive and not cursor.is_at_end:
                    self._cursors[thread] = cursor
                    del self._cursors[other]
                    return


class _Cursor:
    """A batch whose records are taken one by one. `next`: the index of the next one."""

    __slots__ = ("batch", "next")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.next = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all of its records were taken."""
        return self.next == len(self.batch.records)


class _Records:
    """An iteration over records. It keeps nothing itself, so it may be left anywhere."""

    def __init__(self, find: Callable[[], _Cursor]) -> None:
        self._find = find

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Record, Batch]:
        cursor = self._find()
        # No call comes from here on, so that Ctrl-C does not come between the step and the caller.
        record, batch = cursor.batch.records[cursor.next], cursor.batch
        cursor.next += 1
        return record, batch


class Consumer(CallerReading[TrioConsumer], StreamConsumer):
    """Reads the shards whose leases this worker holds, for synchronous code. Made by `efo.sync.open_consumer`.

    Iterate over it: `for batch in consumer`, then `consumer.ack(batch)`; or `consumer.run(reader)`.
    """

    def __init__(self, engine: Engine[TrioConsumer], side: CallerSide) -> None:
        CallerReading.__init__(self, engine, side)
        StreamConsumer.__init__(self, side, self._merge, engine.value)


class MultiStreamConsumer(CallerReading[TrioMultiStreamConsumer], AdaptedStreams):
    """Reads many streams, for synchronous code: `efo.MultiStreamConsumer`. Made by `efo.sync.open_streams`.

    Run it or iterate over it as over a consumer of one stream. `batch.stream` is the name of its stream.
    """

    def __init__(self, engine: Engine[TrioMultiStreamConsumer], side: CallerSide, clients: Clients) -> None:
        super().__init__(engine, side)
        self._clients = clients
