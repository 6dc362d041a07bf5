"""boto3's client, which is botocore's: a thread per shard, over HTTP/1.1.

    python -m proofs.benchmarks.readers.botocore_reader SERVED CONSUMER

SERVED is the line of JSON that the load server prints. Like efo's reader, it reads key, sequence number and length of
the data of every record. It opens KPL aggregates as the naive chain does.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from botocore.config import Config
from botocore.session import Session

from proofs.benchmarks.naive_chain import MAGIC, user_records
from proofs.benchmarks.readers.samples import Sampler

sampler = Sampler()


def read(client: Any, arn: str, shard: str) -> None:
    position = {"Type": "TRIM_HORIZON"}
    response = client.subscribe_to_shard(ConsumerARN=arn, ShardId=shard, StartingPosition=position)
    for member in response["EventStream"]:
        handle(member["SubscribeToShardEvent"]["Records"])


def handle(records: list[dict[str, Any]]) -> None:
    count, size, key, number = 0, 0, "", ""
    for record in records:
        number = record["SequenceNumber"]
        if record["Data"].startswith(MAGIC):
            for key, data in user_records(record["Data"]):  # noqa: B007 - the key is read
                size += len(data)
                count += 1
        else:
            key = record["PartitionKey"]
            size += len(record["Data"])
            count += 1
    sampler.add(count, size, (key, number))


def main() -> None:
    served, consumer = json.loads(sys.argv[1]), sys.argv[2]
    (stream,) = served["streams"].values()
    session = Session()
    session.set_credentials("bench", "bench")
    config = Config(max_pool_connections=len(stream["shards"]))
    client = session.create_client(
        "kinesis", "us-east-1", endpoint_url=served["url"], verify=served["ca_file"], config=config
    )
    for shard in stream["shards"]:
        threading.Thread(target=read, args=(client, stream["consumers"][consumer], shard)).start()


if __name__ == "__main__":
    main()
