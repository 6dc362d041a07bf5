"""`efo run` in a process of its own, connected over TLS to a fake in this one, under a steady load."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from efo.testing import FakeKinesis
from efo_service.demo.demo import DemoProcess
from efo_service.demo.load import DemoLoad

SHARDS: Final = 2
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


async def run_service(
    root: Path,
    seconds: float,
    rate: int,
    settings: Mapping[str, str] = NOTHING,
    on_ready: Callable[[], object] = lambda: None,
) -> None:
    """Run `efo run` and its load for so long.

    `settings`: what the service has beyond the log's. `on_ready`: called in a thread when all shards are read, before
    the load.
    """
    async with FakeKinesis(clock=time.time) as fake:
        fake.create_stream("orders", shards=SHARDS)
        async with fake.serve() as address:
            environment = {
                "AWS_ACCESS_KEY_ID": "bench",
                "AWS_SECRET_ACCESS_KEY": "bench",
                "AWS_EC2_METADATA_DISABLED": "true",
                "EFO_KINESIS__STREAM": "orders",
                "EFO_KINESIS__REGION": "us-east-1",
                "EFO_KINESIS__ENDPOINT_URL": address.url,
                "EFO_KINESIS__CA_FILE": str(address.ca_file),
                "EFO_LEASES__PATH": "leases.sqlite",
                "EFO_RELAY__DIRECTORY": "log",
                "EFO_RELAY__MAINTENANCE_SECONDS": "3600",
                "EFO_SERVICE__PORT": "0",
                **settings,
            }
            child = DemoProcess("run", ["run"], root, environment)
            await child.start()
            try:
                while sum(fake.subscriptions("orders", shard).live for shard in fake.open_shards("orders")) < SHARDS:
                    child.check()
                    await trio.sleep(0.1)
                await trio.to_thread.run_sync(on_ready)
                records = round(seconds * rate)
                await DemoLoad(fake, "orders", records, seconds=seconds, split_at=2, merge_at=2).run()
                await trio.sleep(1)
                await child.stop(30)
            finally:
                await child.end()
