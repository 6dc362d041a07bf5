"""Advice: what whoever wrote a program should know about it, though nothing has failed."""

from __future__ import annotations

from typing import Literal

import msgspec

AdviceTopic = Literal[
    "unacked", "unknown_shards", "initial_position", "worker_id", "lease_file", "subscribe_wait", "taken_over",
    "blocked_loop", "slow_batch",
]  # fmt: skip
"""What an advice is about; docs/troubleshooting.md has each."""


class AdviceGiven(msgspec.Struct, frozen=True):
    """A trap was found: reported once on each topic by a consumer, and kept in its `status().advice`.

    `what`: what was found, and where. `remedy`: what to do about it. `is_warning`: whether something goes wrong; False:
    it may be as it is meant. Neither text contains data.
    """

    topic: AdviceTopic
    what: str
    remedy: str
    is_warning: bool = True
