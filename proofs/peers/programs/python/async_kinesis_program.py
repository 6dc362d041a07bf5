"""async-kinesis: one consumer. The arguments: where its checkpoints are (redis or dynamodb), and the configuration."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any
from urllib.parse import urlsplit

from kinesis import Consumer
from kinesis.checkpointers import RedisCheckPointer
from kinesis.dynamodb import DynamoDBCheckPointer
from kinesis.processors import StringProcessor
from meter import Meter, configuration


def checkpointer(config: dict[str, Any]) -> Any:
    place = sys.argv[1]
    if place == "dynamodb":
        return DynamoDBCheckPointer(
            config["application"],
            table_name=config["application"],
            endpoint_url=config["dynamodb"],
            region_name=config["region"],
            heartbeat_frequency=2,
            session_timeout=6,
        )
    parts = urlsplit(place)
    os.environ["REDIS_HOST"] = parts.hostname or "127.0.0.1"
    os.environ["REDIS_PORT"] = str(parts.port)
    os.environ["REDIS_PASSWORD"] = parts.password or ""
    return RedisCheckPointer(config["application"], heartbeat_frequency=2, session_timeout=6)


async def main() -> None:
    config = configuration()
    meter = Meter(config)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Consumer(
        stream_name=config["stream"],
        endpoint_url=config["endpoint"],
        region_name=config["region"],
        checkpointer=checkpointer(config),
        iterator_type="TRIM_HORIZON",
        sleep_time_no_records=0.5,
        processor=StringProcessor(),
    ) as consumer:
        while not stopping.is_set():
            async for text in consumer:  # it has no partition keys
                meter.details([("", text.encode())])
                meter.add(1, len(text))
            await asyncio.sleep(0.1)
    meter.stopped()


if __name__ == "__main__":
    asyncio.run(main())
