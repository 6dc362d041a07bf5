"""An object store in memory, with faults: for tests and for simulations of every step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from efo_service.object_store.store import (
    ChangedError,
    ExistsError,
    Listed,
    StoredObject,
    UnchangedError,
    Version,
)
from efo_service.relay.errors import StoreUnavailableError

T = TypeVar("T")

Operation = Literal["get", "head", "create", "replace", "delete", "keys", "folders"]
Fault = Literal["refused", "lost", "late"]
"""`refused`: the request did nothing, such as a 503. `lost`: it was done, and the answer was lost. `late`: the answer
was lost, and the request is done later (`MemoryStore.arrive`)."""


@dataclass(frozen=True, slots=True)
class StoreStep:
    """A request that is about to be made, or was made. `number`: counts the requests of the store."""

    number: int
    operation: Operation
    key: str
    is_done: bool


@dataclass(slots=True)
class _Object:
    content: bytes
    generation: int
    modified: float


class MemoryStore:
    """A store in memory. Several of them may share the objects: see `client`.

    `fault`: called before each request; what it returns happens to it. `spoil`: returns what arrives of an object that
    was read: its content, or anything else. `on_step`: called before and after each request that is done: a test lets
    others work meanwhile. `clock`: the store's clock, epoch seconds.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 1_700_000_000.0) -> None:
        self.name = "memory://log"
        self.clock = clock
        self.objects: dict[str, _Object] = {}
        self.fault: Callable[[Operation, str], Fault | None] = lambda _operation, _key: None
        self.spoil: Callable[[str, bytes], bytes] = lambda _key, content: content
        self.on_step: Callable[[StoreStep], None] = lambda _step: None
        self.requests = 0
        self._generation = [0]
        self._late: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def client(self) -> MemoryStore:
        """Return a store with the same objects, and with its own faults and steps."""
        other = MemoryStore(self.clock)
        other.objects, other._generation, other._lock = self.objects, self._generation, self._lock
        return other

    def arrive(self) -> None:
        """Do the requests that were late. What they refuse, nobody hears."""
        late, self._late = self._late, []
        for request in late:
            try:
                request()
            except (ExistsError, ChangedError, UnchangedError):
                continue

    # --- the Store protocol --------------------------------------------------------------------------------

    def get(self, key: str, unless: Version | None = None) -> StoredObject | None:
        """Return an object, unless its version is known."""

        def get() -> StoredObject | None:
            stored = self._read(key, None)
            if stored is not None and stored.version == unless:
                raise UnchangedError
            return stored

        return self._request("get", key, get)

    def head(self, key: str, size: int) -> StoredObject | None:
        """Return the first bytes of an object."""
        return self._request("head", key, lambda: self._read(key, size))

    def create(self, key: str, content: bytes) -> Version:
        """Create an object."""

        def create() -> Version:
            if key in self.objects:
                raise ExistsError
            return self._write(key, content)

        return self._request("create", key, create)

    def replace(self, key: str, content: bytes, version: Version) -> Version:
        """Replace an object."""

        def replace() -> Version:
            if key not in self.objects or self._version(self.objects[key]) != version:
                raise ChangedError
            return self._write(key, content)

        return self._request("replace", key, replace)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""

        def delete() -> None:
            for key in keys:
                self.objects.pop(key, None)

        self._request("delete", ",".join(keys), delete)

    def keys(self, prefix: str) -> Iterator[Listed]:
        """Yield the keys below a prefix."""
        found = self._request(
            "keys",
            prefix,
            lambda: [Listed(key, len(one.content)) for key, one in self.objects.items() if key.startswith(prefix)],
        )
        return iter(found)

    def folders(self, prefix: str) -> list[str]:
        """Return the names below a prefix that have keys below them."""

        def folders() -> list[str]:
            rests = (key.removeprefix(prefix) for key in self.objects if key.startswith(prefix))
            return sorted({rest.partition("/")[0] for rest in rests if "/" in rest})

        return self._request("folders", prefix, folders)

    # --- requests ------------------------------------------------------------------------------------------

    def _request(self, operation: Operation, key: str, work: Callable[[], T]) -> T:
        self.requests += 1
        number = self.requests
        fault = self.fault(operation, key)
        if fault == "refused":
            raise StoreUnavailableError(f"{self.name}: {operation} {key}: 503 Slow Down")
        self.on_step(StoreStep(number, operation, key, is_done=False))
        if fault == "late":
            self._late.append(partial(self._locked, work))
        else:
            try:
                result = self._locked(work)
            finally:
                self.on_step(StoreStep(number, operation, key, is_done=True))
        if fault is not None:
            raise StoreUnavailableError(f"{self.name}: {operation} {key}: no answer")
        return result

    def _locked(self, work: Callable[[], T]) -> T:
        with self._lock:
            return work()

    def _read(self, key: str, size: int | None) -> StoredObject | None:
        one = self.objects.get(key)
        if one is None:
            return None
        content = self.spoil(key, one.content if size is None else one.content[:size])
        return StoredObject(content, self._version(one), one.modified, len(one.content))

    def _write(self, key: str, content: bytes) -> Version:
        self._generation[0] += 1
        self.objects[key] = _Object(bytes(content), self._generation[0], self.clock())
        return self._version(self.objects[key])

    @staticmethod
    def _version(one: _Object) -> Version:
        return Version(f'"{one.generation}"')
