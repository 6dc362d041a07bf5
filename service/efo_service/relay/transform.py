"""The transform of [relay]: a function of the operator's that drops, changes or routes each record before the sink.

    def transform(record: efo.Record) -> efo.Record | tuple[efo.Record, str] | None

None drops the record. A changed one is made by `msgspec.structs.replace(record, data=...)`, and keeps its place in the
shard: the sequence numbers and the arrival time. A pair names the topic, one of [relay.kafka] routes. The position of
the shard covers what is dropped, so delivery stays as it is: exactly once where the sink owns the position.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from efo.errors import ConfigurationError
from efo.model import Record
from efo.third_party_errors import reason_of

Function = Callable[[Record], object]
"""Returns the record that is relayed instead, or a pair of it and its topic; None: none is."""
ROUTE_TAG: Final = str(b"efo.topic", "ascii")
"""The tag of a record that names its topic, between the transform and the sink, which takes it off.

It counts by its identity: a producer's tag of this name is another object, and routes nothing.
"""


class Failed(NamedTuple):
    """A record whose transform failed, and why. `record`: as it was read."""

    record: Record
    reason: str


Transformed = Record | Failed | None
"""What becomes of a record; None: it is dropped."""


class AppliesTo(Protocol):
    """What the write buffer applies to records before the sink gets them."""

    def __call__(self, records: Sequence[Record]) -> Sequence[Transformed]:
        """Return what becomes of each record."""
        ...


class RefusesOld:
    """Refuses records that are too old, so that they are dead letters, and applies `then` to the others."""

    def __init__(self, is_old: Callable[[Record], bool], max_age: float, then: AppliesTo | None) -> None:
        self._is_old: Final = is_old
        self._reason: Final = f"the record is older than max_record_age_seconds, {max_age:g} s"
        self._then: Final = then

    def __call__(self, records: Sequence[Record]) -> Sequence[Transformed]:
        """Return what becomes of each record."""
        is_old = [self._is_old(record) for record in records]
        young = [record for record, old in zip(records, is_old, strict=True) if not old]
        rest = iter(young if self._then is None else self._then(young))
        return [
            Failed(record, self._reason) if old else next(rest) for record, old in zip(records, is_old, strict=True)
        ]


class Transform:
    """Applies a function to records.

    `on_drop`: called with the number of records that a batch has lost by it. `routes`: the topics that it may name.
    """

    def __init__(self, function: Function, on_drop: Callable[[int], object], routes: Collection[str] = ()) -> None:
        self._function: Final = function
        self._on_drop: Final = on_drop
        self._routes: Final = frozenset(routes)

    def __call__(self, records: Sequence[Record]) -> list[Transformed]:
        """Return what becomes of each record. It raises nothing: what the function raises is that record's failure."""
        results = [self._of(record) for record in records]
        if dropped := results.count(None):
            self._on_drop(dropped)
        return results

    def _of(self, record: Record) -> Transformed:
        try:
            result = self._function(record)
        except Exception as error:  # noqa: BLE001 - user code may raise anything; its text may quote the record
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            return Failed(record, f"[relay] transform raised {type(error).__name__} at {place}")
        if result is None or result is record:
            return result
        changed, topic = result if isinstance(result, tuple) and len(result) == 2 else (result, None)  # noqa: PLR2004
        if not isinstance(changed, Record):
            return _failed(record, f"returned {type(changed).__name__}: expected an efo.Record, or None to drop it")
        if topic is not None and not (isinstance(topic, str) and topic in self._routes):
            allowed = ", ".join(sorted(self._routes)) or "none, since only Kafka has them"
            wrong: str | None = f"named a topic that is none of [relay.kafka] routes ({allowed})"
        else:
            wrong = _wrong(record, changed)
        if wrong is not None:
            return _failed(record, wrong)
        return changed if topic is None else msgspec.structs.replace(changed, tags=(*changed.tags, (ROUTE_TAG, topic)))


def _failed(record: Record, wrong: str) -> Failed:
    return Failed(record, f"[relay] transform {wrong}")


def _wrong(before: Record, after: Record) -> str | None:
    """Return why the relay cannot use a changed record; None if it can. msgspec checks no types of what is made."""
    data: object = after.data
    key: object = after.partition_key
    if not isinstance(data, bytes):
        return f"returned data of type {type(data).__name__}: expected bytes"
    if not isinstance(key, str | None):
        return f"returned a partition_key of type {type(key).__name__}: expected a text, or None"
    if _place(after) != _place(before):
        return "changed the record's sequence number or arrival time: use msgspec.structs.replace(record, data=...)"
    return None


def _place(record: Record) -> tuple[str, int, float]:
    return record.sequence_number, record.sub_sequence_number, record.approximate_arrival_timestamp


def unrouted(record: Record) -> tuple[str | None, Record]:
    """Return the topic that a transform named, None if it did not, and the record without it."""
    if not record.tags or record.tags[-1][0] is not ROUTE_TAG:
        return None, record
    return record.tags[-1][1], msgspec.structs.replace(record, tags=record.tags[:-1])


def load_transform(name: str) -> Function:
    """Import the function `name`, given as package.module:function. Raises ConfigurationError."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(import_module(module), attribute)
    except Exception as error:  # the imported module may raise anything
        raise ConfigurationError(
            f"[relay] transform {name!r} cannot be imported ({reason_of(error)}): expected package.module:function, on"
            " the Python path of the service"
        ) from error
    if not callable(function):
        raise ConfigurationError(f"[relay] transform {name!r} is not a function")
    if iscoroutinefunction(function):
        raise ConfigurationError(
            f"[relay] transform {name!r} is async: write `def`. It may not wait, since it is called between two reads"
        )
    found: Function = function
    return found
