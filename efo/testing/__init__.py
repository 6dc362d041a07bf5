"""A fake Kinesis for tests: enhanced fan-out over real HTTP/2, in memory or on a port.

    FakeKinesis         the fake, for tests on trio
    FakeKinesisThread   the fake in a separate thread, for tests that do not use trio
    InMemoryStream      a stream in memory for the tests of an application, through any door of efo
    make_batch, CheckpointRecorder, virtual_time    for tests of a handler or a record processor alone
    FaultScript, When   which faults fire, and when; the faults are in `efo.testing.faults`
    check_lease_store   checks a lease store of one's own, by what efo's stores are checked by
    check_assignment    checks an assignment strategy of one's own, by properties

Names are imported on first use, so that the plugin does not slow down the start of pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efo.testing.assignment import check_assignment
    from efo.testing.fake import FakeKinesis
    from efo.testing.faults.file import load_faults
    from efo.testing.faults.script import ALWAYS, FaultScript, When
    from efo.testing.in_memory import CheckpointRecorder, InMemoryStream, make_batch, virtual_time
    from efo.testing.lease_store import check_lease_store
    from efo.testing.load.settings import Load
    from efo.testing.settings import FakeSettings
    from efo.testing.sigv4 import Credential
    from efo.testing.thread import FakeKinesisThread

_MODULES = {
    "ALWAYS": "efo.testing.faults.script",
    "CheckpointRecorder": "efo.testing.in_memory",
    "Credential": "efo.testing.sigv4",
    "FakeKinesis": "efo.testing.fake",
    "FakeKinesisThread": "efo.testing.thread",
    "FakeSettings": "efo.testing.settings",
    "FaultScript": "efo.testing.faults.script",
    "InMemoryStream": "efo.testing.in_memory",
    "Load": "efo.testing.load.settings",
    "When": "efo.testing.faults.script",
    "check_assignment": "efo.testing.assignment",
    "check_lease_store": "efo.testing.lease_store",
    "load_faults": "efo.testing.faults.file",
    "make_batch": "efo.testing.in_memory",
    "virtual_time": "efo.testing.in_memory",
}

__all__ = (
    "ALWAYS",
    "CheckpointRecorder",
    "Credential",
    "FakeKinesis",
    "FakeKinesisThread",
    "FakeSettings",
    "FaultScript",
    "InMemoryStream",
    "Load",
    "When",
    "check_assignment",
    "check_lease_store",
    "load_faults",
    "make_batch",
    "virtual_time",
)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'efo.testing' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
