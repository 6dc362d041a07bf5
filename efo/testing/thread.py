"""FakeKinesis in a separate thread, for tests that do not run on trio and for other clients."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import trio

from efo.model import FanOutConsumer, Record
from efo.testing.fake import FakeKinesis
from efo.testing.faults.kinds import Fault
from efo.testing.faults.script import FaultScript, Fired, When
from efo.testing.server.listener import Address, environment
from efo.testing.settings import FakeSettings
from efo.testing.state.streams import DistributionStrategy

T = TypeVar("T")


class FakeKinesisThread:
    """A FakeKinesis on a port of 127.0.0.1, for synchronous code.

        with FakeKinesisThread() as fake:
            fake.create_stream("orders", shards=2)
            boto3.client("kinesis", endpoint_url=fake.url, verify=str(fake.ca_file), ...)

    `port`: 0 lets the system choose one. The fake uses the system clock. Methods do the same as the methods of
    FakeKinesis and raise the same exceptions; `call` runs any other function in the fake's thread.
    """

    def __init__(
        self,
        *,
        settings: FakeSettings | None = None,
        faults: FaultScript | None = None,
        port: int = 0,
        tls: bool = True,
    ) -> None:
        self._make = partial(FakeKinesis, settings=settings, clock=time.time, faults=faults)
        self._port = port
        self._tls = tls
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="FakeKinesis", daemon=True)
        self._fake: FakeKinesis
        self._address: Address
        self._stop: trio.Event
        self._token: trio.lowlevel.TrioToken

    def __enter__(self) -> Self:
        """Start the fake. Raises OSError: the port is in use."""
        self._pid = os.getpid()
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:
            self._token.run_sync_soon(self._stop.set)
            self._thread.join()

    @property
    def url(self) -> str:
        """The endpoint's URL."""
        return self._address.url

    @property
    def ca_file(self) -> str | None:
        """The PEM file of the certificate authority to trust; None without TLS."""
        return None if self._address.ca_file is None else str(self._address.ca_file)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which AWS SDKs and tools use the fake."""
        return environment(self._address)

    @property
    def fired(self) -> list[Fired]:
        """The faults that have fired."""
        return list(self._fake.faults.fired)

    def inject(self, fault: Fault, when: When | None = None) -> None:
        """Add a fault to the script."""
        self.call(lambda fake: fake.faults.add(fault, when))

    def call(self, function: Callable[[FakeKinesis], T]) -> T:
        """Call `function` with the fake, in the fake's thread. Raises RuntimeError in a forked child."""
        if os.getpid() != self._pid:
            raise RuntimeError("this process was forked from that of the fake: call it there, or connect to its url")
        return trio.from_thread.run_sync(function, self._fake, trio_token=self._token)

    def create_stream(self, name: str, shards: int = 1, *, distribution: DistributionStrategy | None = None) -> str:
        """Create a stream. Return its ARN."""
        return self.call(lambda fake: fake.create_stream(name, shards, distribution=distribution))

    def put(self, stream: str, partition_key: str | None, data: bytes) -> tuple[str, str]:
        """Put one record. Return its shard id and its sequence number."""
        return self.call(lambda fake: fake.put(stream, partition_key, data))

    def put_many(self, stream: str, records: Iterable[tuple[str | None, bytes]]) -> int:
        """Put (partition key, data) pairs in order. Return their number."""
        return self.call(lambda fake: fake.put_many(stream, records))

    def records(self, stream: str) -> dict[str, list[Record]]:
        """Return all records of a stream in order, by shard id."""
        return self.call(lambda fake: fake.records(stream))

    def distribute(self, stream: str, strategy: DistributionStrategy) -> None:
        """Set how records are distributed from now on, of a stream that was created with a `distribution`."""
        self.call(lambda fake: fake.distribute(stream, strategy))

    def split(self, stream: str, shard_id: str) -> tuple[str, str]:
        """Split a shard in the middle. Return the ids of its children."""
        return self.call(lambda fake: fake.split(stream, shard_id))

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge two adjacent shards. Return the id of their child."""
        return self.call(lambda fake: fake.merge(stream, shard_id, adjacent_shard_id))

    def open_shards(self, stream: str) -> Sequence[str]:
        """Return the ids of the open shards."""
        return self.call(lambda fake: list(fake.open_shards(stream)))

    def register(self, stream: str, name: str) -> FanOutConsumer:
        """Register a fan-out consumer."""
        return self.call(lambda fake: fake.register(stream, name))

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - raised by __enter__
            self._failure = error
            self._ready.set()

    async def _main(self) -> None:
        self._stop, self._token = trio.Event(), trio.lowlevel.current_trio_token()
        async with self._make() as self._fake, self._fake.serve(port=self._port, tls=self._tls) as self._address:
            self._ready.set()
            await self._stop.wait()
