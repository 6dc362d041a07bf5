"""The trace contexts that producers put into records. Pure.

A record of Kinesis has no headers. So a producer that wants its trace to continue puts the context into a KPL tag, or
into the data, where only the application's own extractor finds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from efo.model import Record


class TraceContext(NamedTuple):
    """A W3C trace context: the values of its two headers (W3C Trace Context, level 1)."""

    traceparent: str
    tracestate: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether `traceparent` is well-formed. A context that is not is ignored (W3C Trace Context, 3.2)."""
        return _TRACEPARENT.fullmatch(self.traceparent) is not None


TraceExtractor = Callable[[Record], TraceContext | None]
"""Returns the trace context of a record, or None. It must return the same for the same record every time."""

_MAX_STATE: Final = 512
"""Characters of a `tracestate` that all must pass on (W3C Trace Context, 3.3.1.5). A longer one may be a megabyte."""
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def from_tags(record: Record) -> TraceContext | None:
    """Return the trace context in the KPL tags `traceparent` and `tracestate`. This is a TraceExtractor."""
    if not record.tags:
        return None
    tags = dict(record.tags)
    parent, state = tags.get("traceparent"), tags.get("tracestate")
    if state is not None and len(state) > _MAX_STATE:
        state = None
    return None if parent is None else TraceContext(parent, state)
