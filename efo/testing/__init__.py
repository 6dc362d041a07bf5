"""A fake Kinesis for tests: enhanced fan-out over real HTTP/2, in memory or on a port.

    FakeKinesis         the fake, for tests on trio
    FakeKinesisThread   the fake in a separate thread, for tests that do not use trio
    InMemoryStream      a stream in memory for the tests of an application, through any surface of efo
    make_batch, CheckpointRecorder, virtual_time    for tests of a handler or a record processor alone
    FaultScript, When   which faults fire, and when; the faults are in `efo.testing.faults`
    check_lease_store   checks a lease store of one's own, by what efo's stores are checked by
    check_assignment    checks an assignment strategy of one's own, by properties

Names are imported on first use, so that the plugin does not slow down the start of pytest.
"""

from __future__ import annotations

from efo.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
