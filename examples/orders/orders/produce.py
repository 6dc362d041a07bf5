"""Put orders: `python -m orders.produce 1000`. They are aggregated, and a customer's orders stay in order."""

from __future__ import annotations

import sys

import trio

import efo
from orders.order import Order, encode

SETTINGS = efo.ProducerSettings(aggregate=True, ordered=True)


async def produce(count: int) -> None:
    """Put so many orders of ten customers. Leaving the block waits until all are stored."""
    async with efo.open_producer("orders", serializer=encode, settings=SETTINGS) as producer:
        for number in range(count):
            order = Order(number, f"customer-{number % 10}", 100 + number % 7)
            await producer.put(order, partition_key=order.customer)
    print(f"put {count} orders")


if __name__ == "__main__":
    trio.run(produce, int(sys.argv[1]))
