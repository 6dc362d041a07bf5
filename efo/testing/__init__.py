"""A fake Kinesis for tests: enhanced fan-out over real HTTP/2, in memory or on a port.

    FakeKinesis         the fake, for tests on trio
    FakeKinesisThread   the fake in a separate thread, for tests that do not use trio
    FaultScript, When   which faults fire, and when; the faults are in `efo.testing.faults`

Names are imported on first use, so that the plugin does not slow down the start of pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efo.testing.fake import FakeKinesis
    from efo.testing.faults.file import load_faults
    from efo.testing.faults.script import ALWAYS, FaultScript, When
    from efo.testing.load.settings import Load
    from efo.testing.server.sigv4 import Credential
    from efo.testing.settings import FakeSettings
    from efo.testing.thread import FakeKinesisThread

_MODULES = {
    "ALWAYS": "efo.testing.faults.script",
    "Credential": "efo.testing.server.sigv4",
    "FakeKinesis": "efo.testing.fake",
    "FakeKinesisThread": "efo.testing.thread",
    "FakeSettings": "efo.testing.settings",
    "FaultScript": "efo.testing.faults.script",
    "Load": "efo.testing.load.settings",
    "When": "efo.testing.faults.script",
    "load_faults": "efo.testing.faults.file",
}

__all__ = (
    "ALWAYS",
    "Credential",
    "FakeKinesis",
    "FakeKinesisThread",
    "FakeSettings",
    "FaultScript",
    "Load",
    "When",
    "load_faults",
)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'efo.testing' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
