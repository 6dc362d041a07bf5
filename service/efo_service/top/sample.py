"""A sample: what a running service reported at one moment, from its /status and /metrics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any, Final, Literal, NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from efo.health import ActiveReadMode, Condition, ShardState
from efo_service.errors import UnavailableError
from efo_service.web.probe import ServiceAddress

ShardKey = tuple[str | None, str]
"""Worker and shard. The worker is None in what a worker tells of itself; a supervisor names it."""

_RECORDS: Final = "messaging_client_consumed_messages_total"
_BYTES: Final = "efo_subscription_io_bytes_total"
_SHARD: Final = "messaging_destination_partition_id"
_STREAM: Final = "messaging_destination_name"
_APPLICATION: Final = "messaging_consumer_group_name"


class ShardSample(msgspec.Struct, frozen=True):
    """The fields of a shard in /status that are used.

    Of a service with several streams: `stream`, its name in the configuration; `counted_as`, the shard in the counters.
    """

    shard_id: str
    condition: Condition
    subscription: ShardState
    lag_seconds: float | None
    last_event_age_seconds: float | None
    checkpoint_age_seconds: float | None
    worker_id: str | None = None
    stream: str | None = None
    counted_as: str | None = None
    read_mode: ActiveReadMode | None = None

    @property
    def key(self) -> ShardKey:
        """The name of the shard in the counters of the same sample."""
        return self.worker_id, self.counted_as or self.shard_id


class StatusSample(msgspec.Struct, frozen=True):
    """The fields of /status that are used. `workers`: of a supervisor, its processes."""

    version: str
    problems: tuple[str, ...]
    lease_table: Literal["known", "unknown"]
    shards: tuple[ShardSample, ...]
    workers: int | tuple[dict[str, Any], ...] | None
    application: str | None = None
    worker_id: str | None = None
    has_streams: bool = False


class Counters(msgspec.Struct, frozen=True):
    """The counters of each shard: records that the handler has processed, and bytes of events on the wire."""

    records: Mapping[ShardKey, float]
    bytes: Mapping[ShardKey, float]


class Sample(msgspec.Struct, frozen=True):
    """What the service reported. `at`: when the counters were read, in seconds of a monotonic clock."""

    at: float
    status: StatusSample
    ready: bool
    counters: Counters


class _StreamStatus(msgspec.Struct, frozen=True):
    """The fields of one of several streams in /status that are used."""

    name: str
    stream: str
    application: str
    lease_table: Literal["known", "unknown"]
    shards: tuple[ShardSample, ...]


class _StatusOfStreams(msgspec.Struct, frozen=True):
    """The fields of /status of a service with several streams that are used."""

    version: str
    problems: tuple[str, ...]
    streams: tuple[_StreamStatus, ...]
    workers: tuple[dict[str, Any], ...] | None = None
    worker_id: str | None = None


def parse_status(body: str) -> StatusSample:
    """Return the content of /status. Raises ValueError if the text is another program's."""
    if "streams" not in msgspec.json.decode(body, type=dict):
        return msgspec.json.decode(body, type=StatusSample)
    found = msgspec.json.decode(body, type=_StatusOfStreams)
    shards = (
        msgspec.structs.replace(
            shard, stream=one.name, counted_as=_counted_as(one.application, one.stream, shard.shard_id)
        )
        for one in found.streams
        for shard in one.shards
    )
    known = all(one.lease_table == "known" for one in found.streams)
    return StatusSample(
        version=found.version,
        problems=found.problems,
        lease_table="known" if known else "unknown",
        shards=tuple(shards),
        workers=found.workers,
        worker_id=found.worker_id,
        has_streams=True,
    )


def _counted_as(application: str, stream: str, shard_id: str) -> str:
    return f"{application}/{stream}/{shard_id}"


def parse_counters(text: str, *, has_streams: bool = False) -> Counters:
    """Return the counters of /metrics. Raises ValueError if the text has another format.

    `has_streams`: whether the service has several streams, whose shards have the same ids. Only the counters' lines are
    parsed: thousands of shards have a hundred times as many.
    """
    lines = "\n".join(line for line in text.split("\n") if line.startswith((_RECORDS, _BYTES)))
    found: Mapping[str, dict[ShardKey, float]] = {_RECORDS: defaultdict(float), _BYTES: defaultdict(float)}
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            if sample.name in found and _SHARD in sample.labels:
                shard = sample.labels[_SHARD]
                if has_streams:
                    shard = _counted_as(sample.labels.get(_APPLICATION, ""), sample.labels.get(_STREAM, ""), shard)
                found[sample.name][sample.labels.get("worker"), shard] += sample.value
    return Counters(dict(found[_RECORDS]), dict(found[_BYTES]))


class Samples(NamedTuple):
    """Two successive samples. `previous` is None for the first, and for the first after the service did not answer."""

    sample: Sample
    previous: Sample | None


def fetch(service: ServiceAddress, clock: Callable[[], float] = monotonic) -> Sample:
    """Ask the service. Blocks for a few seconds at most. Raises UnavailableError if it, or efo, does not answer."""
    try:
        status = parse_status(_get(service, "/status"))
        counters = parse_counters(_get(service, "/metrics"), has_streams=status.has_streams)
    except (ValueError, RecursionError) as error:
        raise UnavailableError(
            f"the program at {service.url} is not efo, or another version: check [service] host and port"
        ) from error
    at = clock()
    ready, _ = service.get("/readyz")
    return Sample(at=at, status=status, ready=ready == 200, counters=counters)  # noqa: PLR2004 - HTTP status


def _get(service: ServiceAddress, path: str) -> str:
    """Return the body. Raises UnavailableError without a response or the right token, ValueError for another error."""
    status, body = service.get(path)
    if (refusal := service.refusal(status)) is not None:
        raise UnavailableError(refusal)
    if status != 200:  # noqa: PLR2004 - HTTP status
        raise ValueError(f"HTTP status {status}")
    return body


def refreshes(
    ask: Callable[[], Sample], is_over: Callable[[], bool], *, keep_trying: bool
) -> Iterator[Samples | UnavailableError]:
    """Yield two successive samples again and again. `is_over` waits until the next, and returns whether to end.

    If the service does not answer, yield the error if `keep_trying`, else raise it.
    """
    previous: Sample | None = None
    while True:
        try:
            sample = ask()
        except UnavailableError as error:
            if not keep_trying:
                raise
            previous = None  # counters from before say nothing about now
            yield error
        else:
            yield Samples(sample, previous)
            previous = sample
        if is_over():
            return
