"""pytest's plugin `efo`: a running FakeKinesis as a fixture, for tests of your own consumers.

    fake_kinesis          in memory, for tests on trio (pytest-trio); with `autojump_clock` in virtual time
    fake_kinesis_server   on a TLS port, in a thread of its own, for all other tests
    efo_stream            the name of a stream of two shards in `fake_kinesis`
    efo_load              puts keyed, numbered records into it, and returns what must come out
    efo_faults            the fault script of both fakes, empty
    efo_fake_settings     their settings; define a fixture of this name to change them

Nothing is imported until a fixture is used. `-p no:efo` leaves the plugin out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from efo.testing import FakeKinesis, FakeKinesisThread, FakeSettings, FaultScript

Load = Callable[..., dict[str, list[bytes]]]


@pytest.fixture
def efo_fake_settings() -> FakeSettings:
    """Return the settings of the fakes: AWS' own numbers. Define a fixture of this name to change them."""
    from efo.testing import FakeSettings  # noqa: PLC0415 - runs that do not use it do not pay for it

    return FakeSettings()


@pytest.fixture
def efo_faults() -> FaultScript:
    """Return the fault script of the fakes, empty: add faults to it, and see `fired`."""
    from efo.testing import FaultScript  # noqa: PLC0415 - as above

    return FaultScript()


@pytest.fixture
async def fake_kinesis(efo_fake_settings: FakeSettings, efo_faults: FaultScript) -> AsyncIterator[FakeKinesis]:
    """Run a FakeKinesis in memory, for a test on trio."""
    from efo.testing import FakeKinesis  # noqa: PLC0415 - as above

    async with FakeKinesis(settings=efo_fake_settings, faults=efo_faults) as fake:
        yield fake


@pytest.fixture
def fake_kinesis_server(efo_fake_settings: FakeSettings, efo_faults: FaultScript) -> Iterator[FakeKinesisThread]:
    """Run a FakeKinesis on a TLS port, in a thread of its own, for any test and any client."""
    from efo.testing import FakeKinesisThread  # noqa: PLC0415 - as above

    with FakeKinesisThread(settings=efo_fake_settings, faults=efo_faults) as fake:
        yield fake


@pytest.fixture
def efo_stream(fake_kinesis: FakeKinesis) -> str:
    """Create a stream of two shards in `fake_kinesis`, and return its name."""
    fake_kinesis.create_stream("efo-stream", shards=2)
    return "efo-stream"


@pytest.fixture
def efo_load(fake_kinesis: FakeKinesis, efo_stream: str) -> Load:
    """Return a function that puts `count` records of `keys` partition keys into `efo_stream`.

    Their data are their numbers, in ASCII; it goes on counting when it is called again. It returns all data so far,
    by partition key, in order: what a consumer must get.
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
