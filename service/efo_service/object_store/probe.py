"""Whether a store refuses a conditional write whose condition is false. Nothing is written to a log before."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from efo_service.object_store.store import ChangedError, ExistsError, Store
from efo_service.relay.errors import StoreError, StoreUnavailableError, StoreUnfitError

_DOCS: Final = "docs/log.md lists stores that do"


@dataclass(frozen=True, slots=True)
class StoreProbe:
    """What a probe found. `keeps_versions`: the store keeps what is replaced or deleted, and it costs."""

    keeps_versions: bool


def probe(store: Store, prefix: str, *, has_generations: bool) -> StoreProbe:
    """Create a key twice, and replace it twice by the same version. `prefix`: of the keys of probes.

    `has_generations`: the store numbers the versions of all objects, so that it proves nothing.
    Raises StoreUnfitError if both are taken, StoreUnavailableError, StoreDeniedError and StoreError.
    """
    key = f"{prefix}/{secrets.token_hex(8)}"
    try:
        return _probe(store, key, has_generations=has_generations)
    finally:
        with suppress(StoreError):
            store.delete([key])


def _probe(store: Store, key: str, *, has_generations: bool) -> StoreProbe:
    try:
        first = store.create(key, b"1")
    except ExistsError:
        raise StoreUnavailableError(f"{store.name}: the store reports a conflict for a new key") from None
    with suppress(ExistsError):
        store.create(key, b"2")
        raise StoreUnfitError(
            f"{store.name} creates an object that exists (If-None-Match: * has no effect): two writers could both"
            f" commit, and records would be lost. Use a store with conditional writes: {_DOCS}"
        )
    try:
        store.replace(key, b"3", first)
    except ChangedError:
        raise StoreUnfitError(
            f"{store.name} does not replace an object by its version (If-Match): the log cannot be maintained. Use a"
            f" store with conditional writes: {_DOCS}"
        ) from None
    with suppress(ChangedError):
        store.replace(key, b"4", first)
        raise StoreUnfitError(
            f"{store.name} replaces an object that has changed since (If-Match has no effect): changes of two processes"
            f" would be lost. Use a store with conditional writes: {_DOCS}"
        )
    stored = store.get(key)
    if stored is None or stored.content != b"3":
        raise StoreUnfitError(
            f"{store.name} does not return what was just written: the log needs a store with strong consistency, and no"
            f" cache before it; {_DOCS}"
        )
    return StoreProbe(keeps_versions=not has_generations and first.generation is not None)
