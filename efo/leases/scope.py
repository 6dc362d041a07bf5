"""Which application and stream a lease store belongs to."""

from __future__ import annotations

from efo.arn import parse_stream
from efo.errors import ConfigurationError


class LeaseScope:
    """The application and stream of a lease store. Without names, it belongs to the first consumer that opens it.

    Shard ids of different streams are alike, so that a store of another stream would hold back or skip records.
    """

    def __init__(self, application: str | None = None, stream: str | None = None) -> None:
        self.application = application
        self.stream = None if stream is None else parse_stream(stream)[0]

    def ensure(self, application: str, stream: str) -> None:
        """Raise ConfigurationError if the store belongs to another application or stream."""
        for what, ours, theirs in (("application", self.application, application), ("stream", self.stream, stream)):
            if ours is not None and ours != theirs:
                raise ConfigurationError(
                    f"the lease store belongs to the {what} {ours!r}, and the consumer to {theirs!r}: "
                    f"open a store for {theirs!r}"
                )
        self.application, self.stream = application, stream
