"""Rows of kinesumer, which does not resolve, by the schema of its repository: `pk`, `sk`, `sequence_number`."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import botocore.session
import trio

from efo.testing import FakeKinesis
from proofs.local_servers.dynamodb import credentials
from proofs.peers.program import Configuration

_INDEX: Final = "index-client-key-last-update"


async def write_rows(dynamodb: str, config: Configuration, fake: FakeKinesis) -> None:
    """Create the table, and write what a client has that has read everything and was stopped."""
    checkpoints = {
        shard: records[-1].sequence_number for shard, records in fake.records(config.stream).items() if records
    }
    await trio.to_thread.run_sync(_write, dynamodb, config, checkpoints)


def _write(dynamodb: str, config: Configuration, checkpoints: dict[str, str]) -> None:
    with credentials():
        client = botocore.session.get_session().create_client(
            "dynamodb", region_name=config.region, endpoint_url=dynamodb
        )
        with closing(client):
            keys = {"pk": "HASH", "sk": "RANGE"}
            client.create_table(
                TableName=config.application,
                BillingMode="PAY_PER_REQUEST",
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in (*keys, "last_update")],
                LocalSecondaryIndexes=[
                    {
                        "IndexName": _INDEX,
                        "KeySchema": [
                            {"AttributeName": "pk", "KeyType": "HASH"},
                            {"AttributeName": "last_update", "KeyType": "RANGE"},
                        ],
                        "Projection": {"ProjectionType": "KEYS_ONLY"},
                    }
                ],
            )
            application, stream = config.application, config.stream
            rows = [(f"check_point#{application}#{stream}", shard, number) for shard, number in checkpoints.items()]
            for first, second, number in rows:
                item = {"pk": first, "sk": second, "sequence_number": number, "last_update": "2026-11-23T04:00:00Z"}
                values = {name: {"S": value} for name, value in item.items()}
                client.put_item(TableName=application, Item=values)
            cache = {"pk": {"S": f"shard_cache#{application}"}, "sk": {"S": stream}}
            client.put_item(TableName=application, Item=cache)
