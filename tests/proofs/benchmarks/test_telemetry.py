"""The measurement of telemetry: what is on when it is on, and nothing when it is off."""

from __future__ import annotations

from efo.events import EventReceived
from proofs.benchmarks.readers.telemetry_reader import Telemetry


class FakeConsumer:
    def __init__(self) -> None:
        self._running = {"s-0": FakeShard()}


class FakeShard:
    _spans = None


def test_telemetry_is_all_on_or_all_off():
    telemetry, consumer = Telemetry("always_on"), FakeConsumer()
    try:
        for on, seen in ((False, 0), (True, 1), (False, 0)):
            telemetry.switch(consumer, on=on)
            telemetry(EventReceived("s-0", 1, 900, 7, None))
            assert len(telemetry._kcl.take(0.0)) == seen
            assert (consumer._running["s-0"]._spans is not None) is on
        telemetry.export()
    finally:
        telemetry.close()
