"""The constants of efo that a seed changes for its world, and those that it must not change.

A change must break no rule: whatever interval, budget of a step or size of a buffer efo has, its guarantees hold. The
library knows nothing of this: the values are set in its modules while the world runs, and restored after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import Any, Final

Values = tuple[tuple[str, float], ...]
"""Names of constants, as in PERTURBED, with their values."""

KIB: Final = 1024
PERTURBED_WORLDS: Final = 0.5
"""The share of worlds that change constants."""
PERTURBED_SHARE: Final = 0.35
"""The share of constants that such a world changes."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant that may be changed. `choices`: its values. `users`: the modules that import it, besides its own."""

    choices: tuple[float, ...]
    users: tuple[str, ...] = ()


PERTURBED: Final[Mapping[str, Constant]] = {
    # what one step handles
    "efo.consumer.deaggregator.MAX_RECORDS": Constant((1, 4)),
    "efo.consumer.deaggregator.MAX_BYTES": Constant((1, 500)),
    "efo.protocol.aggregate_message.MAX_CHUNK": Constant((1, 64), ("efo.protocol.deaggregation",)),
    "efo.protocol.frame_meter.MAX_STEP": Constant((1, 16), ("efo.kinesis.connection",)),
    "efo.kinesis.shard_subscription._YIELD_BYTES": Constant((1, 4 * KIB)),
    "efo.kinesis.shard_subscription._PART_BYTES": Constant((1, 64 * KIB)),
    # buffers
    "efo.consumer.handlers.handler.MAX_PENDING_RECORDS": Constant((1, 20)),
    "efo.consumer.handlers.handler.MAX_PENDING_BYTES": Constant((1, 2000)),
    "efo.protocol.eventstream._SMALL": Constant((0, 64)),
    "efo.protocol.frame_splitter.MAX_JOINED": Constant((16 * KIB, 32 * KIB)),
    "efo.kinesis.connection._READ_SIZE": Constant((512, 16 * KIB)),
    "efo.kinesis.connection.MAX_UNSENT": Constant((256, 4 * KIB)),
    "efo.kinesis.response_stream._TAKE_SIZE": Constant((1, 4 * KIB)),
    "efo.kinesis.response_stream._SMALL": Constant((0, 64)),
    # how many at a time
    "efo.consumer.consumer.MAX_PROBES": Constant((1, 3)),
    "efo.kinesis.connection_pool.STREAMS_PER_CONNECTION": Constant((1, 3)),
    "efo.leases.coordinator.MIN_MOVES": Constant((1, 2)),
    "efo.leases.coordinator.MAX_MOVES": Constant((1, 3)),
    "efo.leases.writer.MAX_BATCH": Constant((1, 2)),
    "efo.kinesis.polling.shard_polling.MAX_RECORDS": Constant((1, 7)),
    # intervals
    "efo.protocol.polling.MAX_SLOWDOWN": Constant((1.0, 2.0)),
    "efo.protocol.polling.ITERATOR_LIFE": Constant((1.0, 20.0)),
    "efo.protocol.polling._RECOVERY": Constant((0.5, 1.0)),
    "efo.protocol.polling._MAX_BACKOFF": Constant((1.0, 4.0)),
    "efo.consumer.shard_sync.AUDITS": Constant((5, 60)),
    "efo.consumer.shard_sync.JITTER": Constant((0.0, 0.9)),
    "efo.consumer.shard_task.STORE_RETRY_INTERVAL": Constant((0.05, 2.0)),
    "efo.kinesis.registration.POLL_INTERVAL": Constant((0.2, 3.0)),
    "efo.leases.held_lease.RENEWALS": Constant((4, 6)),
    "efo.leases.held_lease.TRUSTED_SHARE": Constant((0.8, 0.98), ("efo.leases.coordinator",)),
    "efo.leases.held_lease.IDLE_CHECKPOINT_INTERVAL": Constant((10.0, 60.0)),
    "efo.leases.renewals.COALESCING_SHARE": Constant((0.0, 0.5)),
    "efo.leases.renewals.LEASES_PER_STEP": Constant((1, 2)),
    "efo.leases.renewals.MIN_CHECK_SHARE": Constant((0.01, 0.05)),
    "efo.leases.coordinator.RELEASE_RETRY": Constant((0.1, 1.0)),
    "efo.leases.coordinator.OUTDATED_RESCAN_SHARE": Constant((0.001, 0.05)),
    "efo.leases.writer.PATIENCE_SHARE": Constant((0.01, 0.1)),
    "efo.protocol.assignment.assign.SCANS_PER_FAILOVER_TIME": Constant((10, 1000)),
    # time limits
    "efo.kinesis.polling.auto_source.TRIAL_TIMEOUT": Constant((3.0, 60.0)),
    "efo.kinesis.connection_pool.CONNECT_TIMEOUT": Constant((5.0, 20.0)),
    "efo.kinesis.service_call.RESPONSE_TIMEOUT": Constant((12.0, 30.0)),
    "efo.kinesis.service_call.READ_TIMEOUT": Constant((2.0, 10.0)),
    "efo.leases.coordinator.RELEASE_TIMEOUT": Constant((2.0, 10.0)),
    # decisions
    "efo.protocol.assignment.balance.DAMPING": Constant((0.0, 0.3)),
    "efo.protocol.lineage.CONSECUTIVE_HOLES": Constant((1, 6)),
    "efo.protocol.lease_expiry.NEGLECTED_AFTER": Constant((2, 5)),
    "efo.protocol.assignment.balance.SMOOTHING": Constant((10.0, 60.0), ("efo.leases.coordinator",)),
    # what is reported
    "efo.consumer.in_flight.OVERDUE_BATCHES": Constant((2, 10)),
    "efo.consumer.in_flight.OVERDUE_AFTER": Constant((1.0, 30.0)),
    "efo.health.OVERDUE_AFTER": Constant((2.0, 30.0)),
    "efo.consumer.in_flight.SLOW_AFTER": Constant((5.0, 300.0)),
    "efo.health.QUIET_AFTER": Constant((6.0, 60.0)),
    "efo.kinesis.shard_subscription.MIN_BLOCKED": Constant((0.001, 0.1)),
}
"""Each constant, by its module and name, with values that are none of its own."""

FIXED: Final[Mapping[str, tuple[str, ...]]] = {
    "the defaults of arguments, which a plan gives": (
        "efo.consumer.handlers.batched.MAX_BYTES",
        "efo.consumer.handlers.batched.MAX_RECORDS",
    ),
    "no world has a database of an application": ("efo.consumer.handlers.exactly_once.MAX_REFUSALS",),
    "R4: a time takes along the shards that ended up to 5 s before it, as the docs say": (
        "efo.consumer.shard_sync.MARGIN",
    ),
    "no world ends by itself: `make forms` does": ("efo.protocol.until.SLACK",),
    "both steps read the same: `make native-parity`": (
        "efo.protocol.event_decoder.SMALL",
        "efo.protocol.deaggregation._TOGETHER",
    ),
    "R6: the limits of AWS, and the turns of renewals": (
        "efo.protocol.pacing.SHARD_INTERVAL",
        "efo.protocol.pacing.TAKE_OVER_AFTER",
        "efo.protocol.pacing.RENEWAL_OVERDUE_AFTER",
        "efo.protocol.pacing.OVERDUE_PER_FIRST",
    ),
    "the limits of AWS for GetRecords, which all callers share": (
        "efo.protocol.polling.MIN_INTERVAL",
        "efo.protocol.polling.BYTES_PER_SECOND",
    ),
    "R8: when a connection is dead": (
        "efo.kinesis.connection.PING_INTERVAL",
        "efo.kinesis.connection.PING_DEADLINE",
        "efo.protocol.subscription.EVENT_TIMEOUT",
    ),
    "R9: the windows, which HTTP/2 and AWS's SDKs define": (
        "efo.kinesis.connection.CONNECTION_WINDOW",
        "efo.kinesis.http2._INITIAL_WINDOW",
    ),
    "R13: how long AWS may take to create a consumer, and to let go of one that no world has": (
        "efo.kinesis.registration.ACTIVE_TIMEOUT",
        "efo.kinesis.registration.DEREGISTER_TIMEOUT",
    ),
    "what is advised, and when: no record depends on it": (
        "efo.consumer.advice.TAKEOVERS",
        "efo.consumer.advice.TAKEOVERS_WITHIN",
        "efo.consumer.advice._AT_THE_START",
        "efo.consumer.advice._MAX_NAMED",
        "efo.leases.known_rows.RENEWALS",
    ),
    "an event loop in virtual time is not watched": (
        "efo.consumer.loop_watch.BLOCKED_AFTER",
        "efo.consumer.loop_watch.INTERVAL",
    ),
    "R14: how long the last save may take, by which the checks excuse a record that is repeated": (
        "efo.consumer.shard_task.LAST_SAVE_TIMEOUT",
    ),
    "R16: how long IAM may take to apply a change, and how soon credentials are looked for again, as the docs say": (
        "efo.protocol.denials.GRACE",
        "efo.protocol.backoff.CREDENTIALS_PAUSE",
    ),
    "R16: how long a start waits for what passes by itself, and how many odd answers are doubted": (
        "efo.consumer.opening.LEASE_STORE_SECONDS",
        "efo.kinesis.polling.auto_source.REGISTER_TIMEOUT",
        "efo.kinesis.registration.ROOM_INTERVAL",
        "efo.kinesis.registration.ROOM_TIMEOUT",
        "efo.kinesis.start_retries.LONGEST",
        "efo.protocol.denials.DOUBTS",
    ),
    "worlds have no record processors, and their consumers read one stream": (
        "efo.consumer.handlers.processor.LEASE_LOST_TIMEOUT",
        "efo.consumer.streams.opening.OPENINGS",
    ),
    "limits of what a peer may send, and of what a producer may put": (
        "efo.kinesis.http2._MAX_HEADER_LIST",
        "efo.kinesis.polling.shard_polling.MAX_PAGE",
        "efo.kinesis.polling.shard_polling._MAX_ITERATOR",
        "efo.kinesis.service_call.MAX_READ",
        "efo.kinesis.service_call._ERROR_SIZE",
        "efo.protocol.aggregate_message.MAX_FIELDS",
        "efo.protocol.deaggregation.MAX_PARTITION_KEY",
        "efo.protocol.eventstream.MAX_HEADERS_LENGTH",
        "efo.protocol.eventstream.MAX_HEADERS",
        "efo.protocol.eventstream.MAX_MESSAGE_LENGTH",
        "efo.protocol.frame_meter.MAX_HEADER_BLOCK",
        "efo.protocol.frame_meter.MAX_SETTINGS",
        "efo.protocol.frame_meter.MAX_SETTINGS_IN_ALL",
        "efo.protocol.frame_meter.OTHER_LIMIT",
        "efo.protocol.frame_meter._HEADER_WORK",
        "efo.protocol.frame_meter._UNKNOWN",
        "efo.protocol.http_connect.MAX_HEAD",
        "efo.protocol.service_errors.MAX_CODE",
        "efo.protocol.service_errors.MAX_MESSAGE",
    ),
    "of a producer, which a world does not run": ("efo.kinesis.service_call.TIMEOUT",),
    "parts of a format": (
        "efo.kinesis.service_call._OK",
        "efo.protocol.aggregate_message.NO_INDEX",
        "efo.protocol.aggregate_message._LENGTH_DELIMITED",
        "efo.protocol.aggregate_message._MAX_LENGTH_SHIFT",
        "efo.protocol.aggregation._HASH_KEY_DIGITS",
        "efo.protocol.aggregation._MD5_LENGTH",
        "efo.protocol.deaggregation._MD5_LENGTH",
        "efo.protocol.eventstream.OVERHEAD",
        "efo.protocol.eventstream._UUID_BYTES",
        "efo.protocol.frame_meter._END_STREAM",
        "efo.protocol.frame_meter._SETTING_SIZE",
        "efo.protocol.frame_splitter._END_HEADERS",
        "efo.protocol.frame_splitter._END_STREAM_OR_PADDED",
        "efo.protocol.frame_splitter._MAX_LENGTH",
        "efo.protocol.frame_splitter._MIN_GOAWAY",
        "efo.protocol.frame_splitter._STREAM_ID_MASK",
        "efo.protocol.service_errors._SERVER_ERROR",
        "efo.protocol.assignment.balance.DECIMALS",
    ),
    "no world runs that code: several processes of a host, deserializers, and stores that write one by one": (
        "efo.consumer.handlers.deserialize.MAX_UNPACKED",
        "efo.consumer.handlers.deserialize._LARGE",
        "efo.consumer.handlers.deserialize.STEP",
        "efo.consumer.handlers.deserialize._CLOCK_EVERY",
        "efo.consumer.processes.CANCEL_GRACE",
        "efo.consumer.worker_id.MAX_SLOTS",
        "efo.consumer.worker_id._TOKEN_LENGTH",
        "efo.leases.lease_row._YEAR_9999",
        "efo.leases.writes.MAX_CONCURRENT_WRITES",
    ),
    "R15, R5: how sure it is that a stream is another one, or that records have expired; lives.py tries it": (
        "efo.consumer.expired_records.FIRST_PAUSE",
        "efo.consumer.expired_records.FRESH_FOR",
        "efo.consumer.expired_records.MAX_PAUSE",
        "efo.consumer.recreation.FRESH_FOR",
        "efo.consumer.recreation.MAX_CONFIRMATIONS",
        "efo.consumer.shard_sync.LISTING_LAG",
        "efo.consumer.streams.consumer.MAX_PAUSE",
        "efo.kinesis.identity.NOT_VISIBLE_FOR",
        "efo.protocol.identity.MARGIN",
        "efo.protocol.identity.TOLERANCE",
        "efo.protocol.identity._LAYOUT",
        "efo.protocol.identity._LAYOUT_SHIFT",
        "efo.protocol.identity._SHARD_MASK",
        "efo.protocol.identity._SHARD_SHIFT",
        "efo.protocol.unread.MIN_RETENTION",
        "efo.protocol.unread._SLACK",
    ),
    "each plan chooses them": (
        "efo.consumer.shard_sources.FANOUT_RETRY_INTERVAL",
        "efo.consumer.shard_sync.CLEANUP_AFTER",
    ),
    "only the length of a text": ("efo.consumer.shard_sync._MAX_NAMED",),
}
"""The constants that keep their values, by the rule or the reason."""


def choose(random: Random) -> Values:
    """Return the changes of one world; none for a share of the worlds."""
    if random.random() >= PERTURBED_WORLDS:
        return ()
    return tuple(
        (name, random.choice(constant.choices))
        for name, constant in PERTURBED.items()
        if random.random() < PERTURBED_SHARE
    )


@contextmanager
def perturbed(values: Values) -> Iterator[None]:
    """Set constants to these values, in each module that uses them, and restore them at the end."""
    changes: list[tuple[Any, str, float]] = []
    for qualified, value in values:
        owner, _, name = qualified.rpartition(".")
        changes += [
            (module, name, value)
            for module in map(import_module, (owner, *(PERTURBED[qualified].users if qualified in PERTURBED else ())))
        ]
    # All modules are imported now: one that were imported later would copy a changed constant, and keep it.
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
