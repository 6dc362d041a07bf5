"""Times as operators write them: with their zone, or how long ago."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_AGO: Final = re.compile(r"-(\d{1,9}(?:\.\d{1,9})?)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_time(text: str, now: float) -> float | None:
    """Return a time like 2026-01-31T12:00:00Z or -15m in seconds since the epoch; None if it is neither.

    `now`: what -15m is counted from.
    """
    if ago := _AGO.fullmatch(text):
        return max(0.0, now - float(ago[1]) * _SECONDS[ago[2]])
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else max(0.0, at.timestamp())
    except (ValueError, OverflowError):
        return None
