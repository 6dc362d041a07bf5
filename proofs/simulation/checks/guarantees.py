"""What must hold in a world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What must hold in a world. Times are in seconds.

    `at_latest`: records that were put before a shard's first lease must not be read.
    `max_listing_lag`: how old what ListShards shows may be.
    `owns_position`: the sink commits position and data in one step, so no record may take effect twice.
    `saves_late`: a save may take place after the end of its task: the store completes cancelled writes.
    `max_save_delay`: how long after an ack its checkpoint is saved at the latest, if the store works.
    `max_zombie_time`: how long a worker may continue to read after it lost a lease without knowing it.
    `may_refuse`: whether the sink may refuse the record of this key and number, which is then dead-lettered or skipped.
    `may_skip`: whether the policy may skip or dead-letter the record of this key and number.
    """

    at_latest: bool = False
    max_listing_lag: float = 0.0
    owns_position: bool = False
    saves_late: bool = False
    max_save_delay: float = 5.0
    max_zombie_time: float = 10.0
    may_refuse: Callable[[str, int], bool] = lambda _key, _number: False
    may_skip: Callable[[str, int], bool] = lambda _key, _number: False
