"""Whose turn it is to maintain a topic on an object store, so that requests are made once.

A process counts up in `maintenance.json`, and the others look whether the count moves. That is thrift and no lock: two
that maintain at once lose nothing (efo_service.log.objects.compaction).

What expires is decided by the store's clock alone: a commit is as old as its object, and the time now is that of the
last write of `maintenance.json`. So no clock of a service, wrong by hours, makes records expire early.
"""

from __future__ import annotations

from typing import Final

from efo_service.log.files import Fields, parse_fields
from efo_service.log.objects import keys
from efo_service.log.objects.codec import FORMAT_VERSION
from efo_service.log.objects.documents import update
from efo_service.log.objects.head import new_write
from efo_service.object_store.store import Store
from efo_service.relay.files import whole_number

SILENT_PASSES: Final = 3
"""After so many of its own passes without a move of the count, a process takes over the maintenance."""


class Turns:
    """The turns of one process in one topic."""

    def __init__(self, store: Store, topic: str) -> None:
        self._store = store
        self._key = keys.maintenance(topic)
        self._me = new_write()
        self._seen: tuple[str, int] | None = None
        self._silent = 0

    def take(self, restore: str) -> float | None:
        """Return the store's time if this process maintains the topic, None if another one does.

        `restore`: see LogFiles. Raises StoreUnavailableError, LogVersionError, LogError and others.
        """

        def parse(content: bytes) -> tuple[str, int]:
            fields = parse_fields(content, f"{self._store.name}/{self._key}", restore, FORMAT_VERSION)
            try:
                return str(fields["process"]), whole_number(fields["count"])
            except (KeyError, ValueError):
                return "", 0

        stored = self._store.get(self._key)
        seen = None if stored is None else parse(stored.content)
        if seen is not None and seen[0] != self._me:
            self._silent = self._silent + 1 if seen == self._seen else 0
            self._seen = seen
            if self._silent < SILENT_PASSES:
                return None
        self._silent = 0

        def count(content: bytes | None) -> Fields | None:
            now = None if content is None else parse(content)
            if now != seen and (now is None or now[0] != self._me):
                return None  # another process was faster: its turn
            return {"process": self._me, "count": 1 + (now[1] if now else 0)}

        update(self._store, self._key, count)
        written = self._store.get(self._key)
        if written is None or parse(written.content)[0] != self._me:
            return None
        return written.modified
