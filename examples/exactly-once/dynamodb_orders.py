"""Counts of orders by customer in DynamoDB, each order exactly once: `python dynamodb_orders.py STREAM TABLE`.

The table has the key `id`, a string. A transaction of DynamoDB has at most 100 items: 99 customers and the position.
"""

import asyncio
import sys
from collections import Counter

import aiobotocore.session

import efo
import efo.aio


async def main(stream: str, table: str) -> None:
    """Read a stream until Ctrl-C."""
    async with aiobotocore.session.get_session().create_client("dynamodb") as dynamodb:

        def key(stream: str, shard: str) -> dict[str, dict[str, str]]:
            return {"id": {"S": f"position of {stream} {shard}"}}

        async def load(stream: str, shard: str) -> str | None:
            found = await dynamodb.get_item(TableName=table, Key=key(stream, shard), ConsistentRead=True)
            return found["Item"]["position"]["S"] if "Item" in found else None

        async def store(batch: efo.Batch, move: efo.PositionMove) -> None:
            values = {":after": {"S": move.after}}
            condition = "attribute_not_exists(id)"
            if move.before is not None:
                values[":before"], condition = {"S": move.before}, "#p = :before"
            position = {
                "TableName": table,
                "Key": key(move.stream, move.shard_id),
                "UpdateExpression": "SET #p = :after",
                "ConditionExpression": condition,
                "ExpressionAttributeNames": {"#p": "position"},
                "ExpressionAttributeValues": values,
            }
            counts = [
                {
                    "TableName": table,
                    "Key": {"id": {"S": f"orders of {customer}"}},
                    "UpdateExpression": "ADD orders :n",
                    "ExpressionAttributeValues": {":n": {"N": str(count)}},
                }
                for customer, count in Counter(record.partition_key for record in batch).items()
            ]
            try:
                await dynamodb.transact_write_items(TransactItems=[{"Update": each} for each in (position, *counts)])
            except dynamodb.exceptions.TransactionCanceledException as error:
                if error.response["CancellationReasons"][0]["Code"] == "ConditionalCheckFailed":
                    move.check(0)
                raise  # such as a conflict with another transaction: it passes

        policy = efo.FailurePolicy(attempts=None, retry_for=300, then="isolate")
        async with efo.aio.open_consumer(stream, application="orders-into-dynamodb") as consumer:
            handler = efo.batched(store, records=99, seconds=1)
            await consumer.run(efo.aio.ExactlyOnceHandler(handler, load, on_error=policy))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
