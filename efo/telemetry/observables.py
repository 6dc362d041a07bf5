"""The instruments that observers of several streams share in one process.

An SDK makes an observable instrument once for each name, and drops the callbacks of those who make it again. So the
instrument is made here, with one callback that asks all observers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from efo.telemetry.instruments import Instrument

Callback = Callable[[CallbackOptions], Iterable[Observation]]

_LOCK: Final = Lock()


class Observables:
    """The observable instruments of a meter. Get it by `observables_of`."""

    def __init__(self) -> None:
        self._callbacks: dict[Instrument, dict[Hashable, Callback]] = {}

    def observe(self, meter: Meter, instrument: Instrument, key: Hashable, callback: Callback) -> None:
        """Ask `callback` too when the instrument is exported. It replaces that of the same `key`.

        So what is observed under a key, such as a stream and an application, ends only with the meter or with the next
        observer of the same: its last values can still be exported.
        """
        with _LOCK:
            callbacks = self._callbacks.get(instrument)
            if callbacks is None:
                callbacks = self._callbacks[instrument] = {}
                create = getattr(meter, f"create_{instrument.kind}")
                create(instrument.name, [_asking(callbacks)], instrument.unit, instrument.description)
            callbacks[key] = callback


_SHARED: Final[WeakKeyDictionary[Meter, Observables]] = WeakKeyDictionary()


def observables_of(meter: Meter) -> Observables:
    """Return the observable instruments of a meter: the same object for all who use it."""
    with _LOCK:
        return _SHARED.setdefault(meter, Observables())


def _asking(callbacks: dict[Hashable, Callback]) -> Callable[[Any], Iterable[Observation]]:
    """Return a callback that asks all. Exporters' threads call it, so it copies the dict, which is atomic."""
    return lambda options: [found for callback in list(callbacks.values()) for found in callback(options)]
