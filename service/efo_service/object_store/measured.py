"""A store around another that counts its requests and their bytes: what a log on an object store costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from opentelemetry.metrics import Counter, MeterProvider

from efo.telemetry.instruments import SCHEMA_URL
from efo_service.object_store.store import (
    ChangedError,
    ExistsError,
    Listed,
    Store,
    StoredObject,
    UnchangedError,
    Version,
)
from efo_service.relay.errors import StoreError

T = TypeVar("T")

REQUESTS: Final = "efo.object_store.requests"
BYTES: Final = "efo.object_store.io"


class MeasuredStore:
    """Passes all calls to `store`, and counts them. `log`: the value of `efo.log`, the root of the log."""

    def __init__(self, store: Store, meter_provider: MeterProvider, log: str) -> None:
        meter = meter_provider.get_meter("efo.service", schema_url=SCHEMA_URL)
        self._requests: Counter = meter.create_counter(
            REQUESTS, "{request}", "Requests to the object store of the log, by kind. Each has a price."
        )
        self._bytes: Counter = meter.create_counter(
            BYTES, "By", "Bytes of objects that were sent to and received from the object store of the log."
        )
        self._store = store
        self._log = log

    @property
    def name(self) -> str:
        """The name of the store."""
        return self._store.name

    def get(self, key: str, unless: Version | None = None) -> StoredObject | None:
        """Return an object, unless its version is known."""
        return self._received(self._counted("get", lambda: self._store.get(key, unless)))

    def head(self, key: str, size: int) -> StoredObject | None:
        """Return the first bytes of an object."""
        return self._received(self._counted("get", lambda: self._store.head(key, size)))

    def create(self, key: str, content: bytes) -> Version:
        """Create an object."""
        self._add_bytes(len(content), "transmit")
        return self._counted("put", lambda: self._store.create(key, content))

    def replace(self, key: str, content: bytes, version: Version) -> Version:
        """Replace an object."""
        self._add_bytes(len(content), "transmit")
        return self._counted("put", lambda: self._store.replace(key, content, version))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        for key in keys:
            self._counted("delete", partial(self._store.delete, [key]))

    def keys(self, prefix: str) -> Iterator[Listed]:
        """Yield the keys below a prefix."""
        number = -1
        try:
            for number, one in enumerate(self._store.keys(prefix)):
                if number % 1000 == 0:
                    self._add("list", None)
                yield one
        except StoreError as error:
            self._add("list", error.error_type)
            raise
        if number < 0:
            self._add("list", None)

    def folders(self, prefix: str) -> list[str]:
        """Return the names below a prefix that have keys below them."""
        return self._counted("list", lambda: self._store.folders(prefix))

    def _counted(self, operation: str, call: Callable[[], T]) -> T:
        try:
            result = call()
        except (ExistsError, ChangedError):
            self._add(operation, "conflict")
            raise
        except UnchangedError:
            self._add(operation, None)
            raise
        except StoreError as error:
            self._add(operation, error.error_type)
            raise
        self._add(operation, None)
        return result

    def _add(self, operation: str, error_type: str | None) -> None:
        attributes = {"efo.log": self._log, "efo.object_store.operation": operation}
        self._requests.add(1, attributes if error_type is None else {**attributes, "error.type": error_type})

    def _received(self, stored: StoredObject | None) -> StoredObject | None:
        if stored is not None:
            self._add_bytes(len(stored.content), "receive")
        return stored

    def _add_bytes(self, size: int, direction: str) -> None:
        self._bytes.add(size, {"efo.log": self._log, "network.io.direction": direction})
