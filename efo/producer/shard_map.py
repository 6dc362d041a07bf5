"""Which shard a record goes to: the open shards by their hash key ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from efo.model import Shard

_DIGEST_BYTES: Final = 16
_LOWEST: Final = bytes(_DIGEST_BYTES)


def _bounds(shard: Shard) -> tuple[bytes, bytes]:
    keys = shard.hash_key_range
    return int(keys.starting_hash_key).to_bytes(_DIGEST_BYTES), int(keys.ending_hash_key).to_bytes(_DIGEST_BYTES)


class ShardMap:
    """The shards of one listing. Raises ValueError for a listing without an open shard.

    `shard_ids`: the open shards, in the order of their hash keys. `starts`: where each of them begins, as `digest_of`
    returns it; the first begins at 0. A listing may be incomplete while shards are split or merged, so where a shard
    ends is not looked at: where a record was put is known by its response.
    `is_auto`: the service distributes the records (strategy AUTO). All open shards are one target then: `shard_ids` has
    one name for them, and `count` is how many they are.
    """

    def __init__(self, shards: Iterable[Shard], *, is_auto: bool = False) -> None:
        self.is_auto = is_auto
        self._bounds: dict[str, tuple[bytes, bytes]] = {}
        by_start: list[tuple[bytes, str]] = []
        for shard in shards:
            bounds = self._bounds[shard.shard_id] = _bounds(shard)
            if shard.is_open:
                by_start.append((bounds[0], shard.shard_id))
        if not by_start:
            raise ValueError("no shard is open")
        self.count = len(by_start)
        if is_auto:
            by_start = [(_LOWEST, f"any of {self.count} shards")]
        by_start.sort()
        self.starts: Sequence[bytes] = [_LOWEST, *(start for start, _ in by_start[1:])]
        self.shard_ids: Sequence[str] = [shard_id for _, shard_id in by_start]

    def ranges(self) -> Sequence[tuple[str, bytes, bytes | None]]:
        """Return for each open shard its id, its first hash key, and the first of the next one."""
        return list(zip(self.shard_ids, self.starts, (*self.starts[1:], None), strict=True))

    def index_of(self, digest: bytes) -> int:
        """Return the index in `shard_ids` of the shard of a hash key."""
        return bisect_right(self.starts, digest) - 1

    def knows(self, shard_id: str) -> bool:
        """Return whether the listing has this shard, open or closed."""
        return shard_id in self._bounds

    def covers(self, shard_id: str, digests: Iterable[bytes]) -> bool:
        """Return whether all these hash keys are in the range of a shard that the listing has."""
        first, last = self._bounds[shard_id]
        return all(first <= digest <= last for digest in digests)
