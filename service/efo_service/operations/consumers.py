"""Decides which fan-out consumers of a stream are stale. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from efo.model import FanOutConsumer

DAY: Final = 86_400.0


def stale(
    consumers: Iterable[FanOutConsumer], *, match: str, older_than: float, now: float, own: str
) -> list[FanOutConsumer]:
    """Return the consumers whose name matches and that are old enough, except `own` and those being deleted.

    `match`: a shell pattern. `older_than`: days. `now`: seconds since the epoch. Kinesis does not report whether a
    consumer is in use, so name and age are the only criteria.
    """
    return [
        consumer
        for consumer in consumers
        if consumer.status != "DELETING"
        and consumer.name != own
        and fnmatchcase(consumer.name, match)
        and now - consumer.created_at >= older_than * DAY
    ]
