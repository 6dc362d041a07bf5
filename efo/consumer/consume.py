"""`efo.consume`: one call for a stream and a handler."""

from __future__ import annotations

from typing import Unpack

import trio

from efo.consumer.consumer import Consumer
from efo.consumer.handlers.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.consumer.opening import OpenOptions, open_consumer
from efo.event_loops import require_trio
from efo.kinesis.client import KinesisClient
from efo.protocol.failure import OnError


async def consume(
    stream: str | KinesisClient,
    handler: BatchHandler | None = None,
    *,
    record_handler: RecordHandler | None = None,
    on_error: OnError | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    task_status: trio.TaskStatus[Consumer] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[OpenOptions],
) -> None:
    """Read a stream by enhanced fan-out and call a handler with each batch, until cancelled, drained or done.

    `handler`: an async function, called with one batch after the other of each shard, and for several shards at once. A
    batch has at least one record. `record_handler` instead of it: an async function, called with each record and its
    batch. Wrap a function that blocks: `efo.in_thread(function)`. Progress is saved every 5 seconds and at the end, so
    after a crash the last seconds are processed again: at least once.

    `on_error`: the failure policy of the handler, or a function that returns it for an exception. By default, a handler
    that raises stops everything, after its progress is saved: nothing is skipped or retried silently (rule R11).
    `on_service_error`: "isolate" stops a single shard that the service rejects (KMS, access denied); "stop" waits until
    it is permitted again, if anything was read before, and stops everything otherwise. `flush`, `key_concurrency`: see
    `Handler`.

    `stream`: the stream's name or ARN, or a client that `open_kinesis` made. `application`: the name of the group of
    workers that share the shards. The fan-out consumer has this name too, and is registered if it does not exist.
    `initial_position`: where shards start that were never read; it overrides that of the settings.
    `until`: it ends by itself when all shards are read up to there, and what was delivered is processed: "now" means
    what was in the stream at the start; a time ends before the first record that arrived then or later. Children of
    shards that were split or merged are read too. `timeout`: it drains after so many seconds, whatever it has read.
    `settings`: all other settings, see `ConsumerSettings`. `leases`: where leases and checkpoints are kept: the path of
    an SQLite file that the workers of this machine share, a URL, or a lease store, see `open_lease_store`.
    `worker_id`: the id of this worker. By default it is unique on this host, and the same after a restart.
    `region`, `endpoint_url`, `ca_file`, `profile`, `proxy_url`: as for `open_kinesis`.
    `observer`: called with each diagnostic event; by default, events go to the logger `efo`.
    `tracing`: the OpenTelemetry spans; by default those of the global tracer provider, if one is set by now.

    With `nursery.start` it returns the Consumer, to drain it, or to pause and seek. Raises EfoError, and what the
    handler raises.
    """
    require_trio("efo.consume")
    reader = Handler(
        handler,
        record_handler=record_handler,
        on_error=on_error,
        flush=flush,
        key_concurrency=key_concurrency,
    )
    async with open_consumer(stream, **options) as consumer:
        task_status.started(consumer)
        await consumer.run(reader)
