"""The native step from bytes to records, by the distribution efo-native, if it is installed and fits (`native/`).

The Python step is the reference. A native function reads what is of the common form, and returns None for the rest:
then the Python step reads that from its beginning, and its answer or its error counts.
"""

from __future__ import annotations

import os
from collections.abc import Container
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple, Protocol, TypeAlias

from efo.model import Record
from efo.third_party_errors import reason_of

VERSION: Final = "0.1.0"
"""The version of efo-native that this efo calls: its own."""

StreamData: TypeAlias = tuple[int, int, list[bytes]]
"""The id of a stream, and of content that has arrived on it: its length, and its chunks."""
Read: TypeAlias = tuple[tuple[Record, ...], bytes]
"""The records, and the JSON object without them."""
Packed: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, str | None, bytes]
"""The fields of `efo.protocol.packed.PackedColumns`, and the JSON object without its records."""


class Step(Protocol):
    """What efo-native does."""

    def split_data(
        self, data: bytes, start: int, partial: bytes, known: Container[int], max_joined: int, max_frames: int
    ) -> tuple[list[StreamData], int, bool] | None:
        """Return the content of the frames of HTTP/2 at `data[start:]`; the first one began with `partial`.

        Also how many bytes remain: the start of a frame, unless `max_frames` were split, which comes last. None unless
        all are DATA of streams in `known`, with nothing unusual. Chunks have at most `max_joined` bytes.
        """
        ...

    def event(
        self, first: bytes | memoryview, later: list[bytes | memoryview], start: int, length: int, headers: bytes
    ) -> Read | None:
        """Return the records of the event whose frame is so many bytes at `start` in chunks, if the headers fit."""
        ...

    def packed(
        self, first: bytes | memoryview, later: list[bytes | memoryview], start: int, length: int, headers: bytes
    ) -> Packed | None:
        """Return the records of such an event without an object for each; None also if one may be an aggregate."""
        ...

    def page(self, body: bytes) -> Read | None:
        """Return the records of a page of GetRecords."""
        ...

    def plain_size(self, records: tuple[Record, ...]) -> int | None:
        """Return how many bytes of data the records have. None if one of them may be an aggregate."""
        ...

    def aggregates(
        self, records: tuple[Record, ...], max_users: int, kept: tuple[bytes, bytes] | None
    ) -> list[tuple[Record, ...] | None]:
        """Return the user records of each aggregate, if it is intact and the hash key of each is in `kept`.

        `kept`: the first and the last hash key, as `aggregation.digest_of` returns them. At least of the first one:
        the list ends before all are more than `max_users`.
        """
        ...


class ChosenStep(NamedTuple):
    """Which step is used, and why. `remedy`: what to do if the native step is installed and cannot be used."""

    step: Step | None
    detail: str
    remedy: str = ""

    @property
    def name(self) -> str:
        """Its name: native, or python."""
        return "python" if self.step is None else "native"


def _load() -> ChosenStep:
    if os.environ.get("EFO_NATIVE") == "0":
        return ChosenStep(None, "python: EFO_NATIVE is 0")
    try:
        module: ModuleType = import_module("efo_native")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "efo_native":
            return ChosenStep(None, "python: efo-native is not installed")
        return ChosenStep(None, f"python: efo-native cannot be imported: {reason_of(error)}", _REMEDY)
    if module.__version__ != VERSION:
        found = f"python: efo-native {str(module.__version__)[:20]} is installed, and this efo needs {VERSION}"
        return ChosenStep(None, found, _REMEDY)
    try:
        return ChosenStep(module.Step(Record), f"native: efo-native {VERSION}")
    except TypeError:
        return ChosenStep(None, "python: this version of msgspec makes records in a way that efo-native does not know")


_REMEDY: Final = f"install efo-native {VERSION}, or remove it"
DECODER: Final = _load()
STEP: Final = DECODER.step
