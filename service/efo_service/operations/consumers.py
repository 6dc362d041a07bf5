"""The fan-out consumers of a stream, and which of them look forgotten. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from efo.model import FanOutConsumer

DAY: Final = 86_400.0


def forgotten(
    consumers: Iterable[FanOutConsumer], *, match: str, older_than: float, now: float, own: str
) -> list[FanOutConsumer]:
    """Return the consumers to clean away: of a name that matches, registered so long ago, and not our own.

    `match`: a shell pattern. `older_than`: days. `now`: seconds since the epoch. Kinesis does not tell whether anybody
    reads by a consumer, so a name and an age are all there is to go by. One that is being deleted is left out.
    """
    return [
        consumer
        for consumer in consumers
        if consumer.status != "DELETING"
        and consumer.name != own
        and fnmatchcase(consumer.name, match)
        and now - consumer.created_at >= older_than * DAY
    ]
