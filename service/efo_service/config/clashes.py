"""Two streams of one process that would use the same thing. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Final

from efo.arn import parse_stream
from efo_service.config.settings import KinesisSettings, Settings
from efo_service.object_store.url import StoreUrl


def clashes(streams: Mapping[str, Settings]) -> Iterator[str]:
    """Yield what is wrong with the streams of one process together: which streams, what they share, what to do."""
    for (name, one), (other_name, other) in combinations(streams.items(), 2):
        for problem in clashes_of(one, other):
            yield f"[streams.{name}] and [streams.{other_name}]: {problem}"


def clashes_of(one: Settings, other: Settings) -> Iterator[str]:
    """Yield why two streams cannot be read by one process at the same time."""
    application, stream = one.consumer.application, one.kinesis.stream_name
    if (application, stream) == (other.consumer.application, other.kinesis.stream_name):
        yield (
            f"both are the application {application!r} on the stream {stream!r}, so that their leases and metrics are "
            "the same: choose another [consumer] application for one of them"
        )
    elif (name := one.consumer.fan_out_consumer) == other.consumer.fan_out_consumer and _may_be_same(
        one.kinesis, other.kinesis
    ):
        yield (
            f"both read the stream {stream!r} as the fan-out consumer {name!r}, and would take "
            "its subscriptions from each other: choose another [consumer] consumer_name for one of them"
        )
    if _share_lease_table(one, other):
        yield (
            f"both keep their leases in the DynamoDB table {_table_name(one)!r}, where all shards look alike: "
            "choose another [leases.dynamodb] table for one of them, or set stream_id for both, as multi-stream "
            "applications of KCL do"
        )
    if (namespace := _namespace(one)) is not None and namespace == _namespace(other):
        yield (
            f"both publish to the CloudWatch namespace {namespace[0]!r}, where shards of the same id are one metric: "
            "choose another [cloudwatch] namespace for one of them"
        )
    yield from _shared_outputs(one, other)


def _namespace(settings: Settings) -> tuple[str | None, ...] | None:
    """Return where the metrics of KCL go, None if they are not published."""
    kinesis, chosen = settings.kinesis, settings.cloudwatch
    if chosen.level == "none":
        return None
    region = chosen.region or kinesis.region or parse_stream(kinesis.stream)[1]
    return (
        chosen.namespace or settings.consumer.application,
        region,
        chosen.endpoint_url,
        chosen.profile or kinesis.profile,
    )


def _may_be_same(one: KinesisSettings, other: KinesisSettings) -> bool:
    """Return whether two streams may be one: nothing that is known tells them apart."""
    (name, region), (other_name, other_region) = parse_stream(one.stream), parse_stream(other.stream)
    regions, accounts = {one.region or region, other.region or other_region}, {_account(one), _account(other)}
    return (
        name == other_name
        and one.endpoint_url == other.endpoint_url
        and (None in regions or len(regions) == 1)
        and (None in accounts or len(accounts) == 1)
    )


def _account(kinesis: KinesisSettings) -> str | None:
    if parse_stream(kinesis.stream)[1] is not None:
        return kinesis.stream.split(":")[4]
    return None if kinesis.role_arn is None else kinesis.role_arn.split(":")[4]


def _table_name(settings: Settings) -> str:
    return settings.leases.dynamodb.table or settings.consumer.application


def _share_lease_table(one: Settings, other: Settings) -> bool:
    """Return whether the leases of both would be the same rows of DynamoDB. Other stores keep streams apart."""
    ids = {one.leases.dynamodb.stream_id, other.leases.dynamodb.stream_id}
    return (
        one.leases.store == other.leases.store == "dynamodb"
        and _lease_table(one) == _lease_table(other)
        and (None in ids or len(ids) == 1)
    )


def _lease_table(settings: Settings) -> tuple[str | None, ...]:
    kinesis, chosen = settings.kinesis, settings.leases.dynamodb
    region = chosen.region or kinesis.region or parse_stream(kinesis.stream)[1]
    return _table_name(settings), region, chosen.endpoint_url, chosen.profile or kinesis.profile


def _shared_outputs(one: Settings, other: Settings) -> Iterator[str]:
    written, dead_letters = _outputs(one)
    other_written, other_dead_letters = _outputs(other)
    # Kafka's topic of dead letters may be shared: each names its stream. A topic of the log has one stream.
    shared = (written & other_written) | (written & other_dead_letters) | (dead_letters & other_written)
    shared |= {output for output in dead_letters & other_dead_letters if output[0] == "log"}
    for output in sorted(shared, key=str):
        yield _REPORTED[output[0]].format(*output)


_REPORTED: Final = {
    "log": "both write the topic {2!r} of the log {1}, which belongs to one stream: choose another [relay] topic,"
    " dead_letters or directory for one of them",
    "jsonl": "both write the JSON lines to {1}: choose another [relay] jsonl_file for one of them",
    "kafka": "both write the topic {2!r} of the Kafka cluster {1}: choose another [relay.kafka] topic for one of them,"
    " such as one with {{stream}}",
    "plugin": "both write the topic {2!r} of the sink {1!r} with the same options: choose another [relay] topic for one"
    " of them",
}


def _outputs(settings: Settings) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """Return where records go, and where dead letters go."""
    relay = settings.relay
    root = relay.log_root
    log = ("log", str(root) if isinstance(root, StoreUrl) else _normal(root))
    brokers = ("kafka", relay.kafka.bootstrap_servers)
    written: tuple[str, ...]
    dead_letters = log
    match relay.sink:
        case "log":
            written = (*log, settings.topic)
        case "jsonl":
            written = ("jsonl", "stdout" if str(relay.jsonl_file) == "-" else _normal(relay.jsonl_file))
        case "kafka":
            written, dead_letters = (*brokers, settings.topic), brokers
        case other:
            written = ("plugin", other, settings.topic, *(f"{k}={v}" for k, v in sorted(relay.options.items())))
    return {written}, set() if relay.dead_letters is None else {(*dead_letters, relay.dead_letters)}


def _normal(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - unlike Path.resolve, it looks at no file
