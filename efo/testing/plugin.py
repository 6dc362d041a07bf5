"""The pytest plugin `efo`: fixtures with a running FakeKinesis, for tests of your consumers.

    fake_kinesis          a fake in memory, for tests on trio (pytest-trio); with `autojump_clock` in virtual time
    fake_kinesis_server   a fake on a TLS port, in a separate thread, for all other tests
    efo_in_memory         a stream in memory, `InMemoryStream`, for tests in any style; `process_all` reads it
    efo_stream            the name of a stream with two shards in `fake_kinesis`
    efo_load              puts numbered records with keys into it, and returns what a consumer must receive
    efo_faults            the fault script of both fakes, initially empty
    efo_fake_settings     the settings of both fakes; define a fixture of this name to change them

Nothing is imported until a fixture is used. `-p no:efo` disables the plugin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from efo.testing import FakeKinesis, FakeKinesisThread, FakeSettings, FaultScript, InMemoryStream

Load = Callable[..., dict[str, list[bytes]]]


@pytest.fixture
def efo_fake_settings() -> FakeSettings:
    """Return the settings of the fakes, with AWS's limits. Define a fixture of this name to change them."""
    from efo.testing import FakeSettings  # noqa: PLC0415 - imported only in test runs that use it

    return FakeSettings()


@pytest.fixture
def efo_faults() -> FaultScript:
    """Return the fault script of the fakes. Add faults to it; `fired` lists those that fired."""
    from efo.testing import FaultScript  # noqa: PLC0415 - as above

    return FaultScript()


@pytest.fixture
async def fake_kinesis(efo_fake_settings: FakeSettings, efo_faults: FaultScript) -> AsyncIterator[FakeKinesis]:
    """Run a FakeKinesis in memory, for a test on trio (pytest-trio)."""
    from efo.testing import FakeKinesis  # noqa: PLC0415 - as above

    async with FakeKinesis(settings=efo_fake_settings, faults=efo_faults) as fake:
        yield fake


@pytest.fixture
def fake_kinesis_server(efo_fake_settings: FakeSettings, efo_faults: FaultScript) -> Iterator[FakeKinesisThread]:
    """Run a FakeKinesis on a TLS port in a separate thread, for any test and any client."""
    from efo.testing import FakeKinesisThread  # noqa: PLC0415 - as above

    with FakeKinesisThread(settings=efo_fake_settings, faults=efo_faults) as fake:
        yield fake


@pytest.fixture
def efo_in_memory() -> InMemoryStream:
    """Return a stream in memory with two shards, for a consumer or producer in any style."""
    from efo.testing import InMemoryStream  # noqa: PLC0415 - as above

    return InMemoryStream(shards=2)


@pytest.fixture
def efo_stream(fake_kinesis: FakeKinesis) -> str:
    """Create a stream with two shards in `fake_kinesis`. Return its name."""
    fake_kinesis.create_stream("efo-stream", shards=2)
    return "efo-stream"


@pytest.fixture
def efo_load(fake_kinesis: FakeKinesis, efo_stream: str) -> Load:
    """Return a function that puts `count` records with `keys` partition keys into `efo_stream`.

    The data of a record is its number, in ASCII; further calls continue the numbers. The function returns all data
    put so far, by partition key and in order: what a consumer must receive.
    """
    expected: dict[str, list[bytes]] = {}
    numbers = iter(range(2**63))

    def load(count: int = 100, keys: int = 10) -> dict[str, list[bytes]]:
        for number in (next(numbers) for _ in range(count)):
            key, data = f"key-{number % keys}", b"%d" % number
            fake_kinesis.put(efo_stream, key, data)
            expected.setdefault(key, []).append(data)
        return {key: list(data) for key, data in expected.items()}

    return load
