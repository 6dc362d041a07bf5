"""A FastAPI application that keeps the totals of a stream's orders up to date, and ends when it can no longer do so.

uvicorn orders_api:app
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, Request, Response

import efo
import efo.aio

totals: Counter[str] = Counter()
"""Cents by customer. A real one is a table, which keeps the position too: see ../exactly-once."""


async def bill(record: efo.Record, _batch: efo.Batch) -> None:
    """Add an order. What it raises is retried, and then ends the consumer: no order is left out in silence."""
    order = json.loads(record.data)
    totals[order["customer"]] += order["cents"]


class State(TypedDict):
    """What the requests share."""

    consumer: efo.aio.Consumer


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
    """Read the stream while the application serves: its leases are given back before the process ends."""
    handler = efo.aio.Handler(record_handler=bill, on_error=efo.FailurePolicy(attempts=3, then="stop"))
    async with efo.aio.open_consumer("orders", application="billing") as consumer:
        reading = asyncio.create_task(consumer.run(handler))
        # A consumer that has ended must not leave an application that answers 200 from old totals.
        reading.add_done_callback(lambda _ended: signal.raise_signal(signal.SIGTERM))
        yield {"consumer": consumer}
        consumer.drain()
        await reading


app = FastAPI(lifespan=lifespan)


@app.get("/totals")
async def get_totals() -> dict[str, int]:
    """Return what each customer ordered, in cents."""
    return dict(totals)


@app.get("/healthz")
async def health(request: Request, response: Response) -> dict[str, object]:
    """Answer 503 once the consumer has failed; how far behind the shards are is for the reader to judge."""
    status = request.state.consumer.status()
    response.status_code = 200 if status.failure is None else 503
    return {"failure": status.failure, "shards": len(status.shards)}
