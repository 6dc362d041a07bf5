"""Small JSON objects that several processes change: read, change, and write if nobody has written since."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Final

from efo_service.log.files import Fields
from efo_service.log.objects.codec import FORMAT_VERSION
from efo_service.log.objects.head import new_write
from efo_service.object_store.store import ChangedError, ExistsError, Store, StoredObject
from efo_service.relay.doubt import read_again
from efo_service.relay.errors import StoreUnavailableError

ATTEMPTS: Final = 30
"""How often a change is tried while others change the same object. With 30, a hundred processes get their turn."""
_PAUSE: Final = 1.0
"""Longest pause between two tries, in seconds."""


def update(
    store: Store,
    key: str,
    change: Callable[[bytes | None], Fields | None],
    *,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Change an object by compare-and-set.

    `change` gets what is there, and returns the new fields; None if there is nothing to do. It is called again if
    another process was faster, or if it finds damage, and must then have the same effect as if it was called once: an
    earlier write of it may have happened without an answer. Raises StoreUnavailableError, StoreDeniedError, StoreError,
    and what it raises.
    """

    @read_again
    def changed() -> tuple[StoredObject | None, Fields | None]:
        stored = store.get(key)
        return stored, change(None if stored is None else stored.content)

    for attempt in range(ATTEMPTS):
        stored, fields = changed()
        if fields is None:
            return
        # Without `write`, content that returns would have the ETag of the earlier one.
        content = json.dumps({"format": FORMAT_VERSION, "write": new_write(), **fields}, indent=1).encode()
        try:
            if stored is None:
                store.create(key, content)
            else:
                store.replace(key, content, stored.version)
        except (ExistsError, ChangedError):
            pause(random.uniform(0, min(_PAUSE, 0.01 * 2**attempt)))  # noqa: S311 - not used for security
        else:
            return
    raise StoreUnavailableError(
        f"{store.name}/{key} was changed by others {ATTEMPTS} times while this process tried to"
    )
