"""The simple case: a stream, a handler, and everything else by default."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from efo.consumer.consumer import Consumer, open_consumer
from efo.consumer.failure_handler import DeadLetterSink, OnError
from efo.consumer.handler import BatchHandler, Flush, Handler, RecordHandler
from efo.events import Observer, ignore
from efo.kinesis.aws import open_kinesis
from efo.kinesis.client import Kinesis
from efo.leases.store import LeaseStore
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Position
from efo.protocol.failure import FailurePolicy
from efo.settings import ConsumerSettings, Shards, StartAt


async def consume(
    stream: str | Kinesis,
    handle: BatchHandler | None = None,
    *,
    application: str,
    handle_record: RecordHandler | None = None,
    failures: OnError | None = None,
    dead_letter: DeadLetterSink | None = None,
    flush: Flush | None = None,
    key_concurrency: int = 1,
    initial_position: Position | None = None,
    start_at: StartAt | None = None,
    shards: Shards | None = None,
    leases: Path | str | LeaseStore = "efo-leases.sqlite",
    worker_id: str | None = None,
    region: str | None = None,
    endpoint_url: str | None = None,
    ca_file: str | None = None,
    observer: Observer = ignore,
    task_status: trio.TaskStatus[Consumer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """ShardReader a stream by enhanced fan-out and hand each batch to `handle`, until cancelled.

    `handle` is called with one batch after the other of each shard, and for several shards at once. A batch has at
    least one record. `handle_record` instead of it is called with one record after the other. Progress is saved every
    5 seconds and at the end, so after a crash the last seconds come again: at least once.

    A handler that raises ends it all, after what was handled is saved: nothing is skipped silently (rule R11), and
    nothing is tried again that its author did not say may be. `failures` states another policy; with "stop_shard" a
    shard that the service refuses for good (KMS, access denied) stops alone as well. `dead_letter`, `flush` and
    `key_concurrency` are explained at `Handler`.

    `stream`: name or ARN, or what `open_kinesis` gave. `application`: names the group of workers, and the fan-out
    consumer, which is registered if there is none. `initial_position`: where shards start that were never read;
    default: the oldest record. `start_at`, `shards`: see `ConsumerSettings`. `leases`: the SQLite file that the workers
    of this machine share, or any other store. `worker_id`: this worker among them; default: the host's name. `region`,
    `endpoint_url`, `ca_file`: as for `open_kinesis`. With `nursery.start` it gives the Consumer, to stop it, or to
    pause and seek. Raises EfoError, and what the handler raises.
    """
    settings = ConsumerSettings(
        application=application,
        worker_id=worker_id or socket.gethostname(),
        initial_position=initial_position or Position.trim_horizon(),
        start_at=start_at,
        shards=shards,
        park_faults=isinstance(failures, FailurePolicy) and failures.then == "stop_shard",
    )
    handling = Handler(
        handle,
        handle_record=handle_record,
        failures=failures,
        dead_letter=dead_letter,
        flush=flush,
        key_concurrency=key_concurrency,
        observer=observer,
    )
    async with AsyncExitStack() as stack:
        if isinstance(stream, str):
            opened = open_kinesis(stream, region=region, endpoint_url=endpoint_url, ca_file=ca_file)
            stream = await stack.enter_async_context(opened)
        if isinstance(leases, str | Path):
            leases = await stack.enter_async_context(SqliteLeaseStore(Path(leases), application, stream.stream))
        consumer = await stack.enter_async_context(open_consumer(stream, leases, settings, observer))
        task_status.started(consumer)
        await consumer.run(handling)
