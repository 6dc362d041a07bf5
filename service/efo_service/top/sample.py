"""A sample: what a running service told at one moment, from its /status and /metrics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from efo.protocol.reading import Condition, ShardState

ShardKey = tuple[str | None, str]
"""Worker and shard. The worker is None in what a worker tells of itself; a supervisor names it."""

_RECORDS: Final = "messaging_client_consumed_messages_total"
_BYTES: Final = "efo_subscription_io_bytes_total"
_SHARD: Final = "messaging_destination_partition_id"


class ShardStatus(msgspec.Struct, frozen=True):
    """The fields of a shard in /status that are used."""

    shard_id: str
    condition: Condition
    subscription: ShardState
    lag_seconds: float | None
    last_event_age_seconds: float | None
    checkpoint_age_seconds: float | None
    worker_id: str | None = None

    @property
    def key(self) -> ShardKey:
        """The name of the shard in the counters of the same sample."""
        return self.worker_id, self.shard_id


class Status(msgspec.Struct, frozen=True):
    """The fields of /status that are used. `workers`: of a supervisor, its processes."""

    version: str
    problems: tuple[str, ...]
    lease_table: Literal["known", "unknown"]
    shards: tuple[ShardStatus, ...]
    workers: int | tuple[dict[str, Any], ...] | None
    application: str | None = None
    worker_id: str | None = None


class Counters(msgspec.Struct, frozen=True):
    """The counters of each shard: records that the handler has processed, and bytes of events on the wire."""

    records: Mapping[ShardKey, float]
    bytes: Mapping[ShardKey, float]


class Sample(msgspec.Struct, frozen=True):
    """What the service told. `at`: when the counters were read, in seconds of a monotonic clock."""

    at: float
    status: Status
    ready: bool
    counters: Counters


def parse_status(body: str) -> Status:
    """Return the content of /status. Raises ValueError if the text is another program's."""
    return msgspec.json.decode(body, type=Status)


def parse_counters(text: str) -> Counters:
    """Return the counters of /metrics. Raises ValueError if the text has another format.

    Only their lines are parsed: thousands of shards have a hundred times as many.
    """
    lines = "\n".join(line for line in text.split("\n") if line.startswith((_RECORDS, _BYTES)))
    found: Mapping[str, dict[ShardKey, float]] = {_RECORDS: defaultdict(float), _BYTES: defaultdict(float)}
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            if sample.name in found and _SHARD in sample.labels:
                found[sample.name][sample.labels.get("worker"), sample.labels[_SHARD]] += sample.value
    return Counters(dict(found[_RECORDS]), dict(found[_BYTES]))
