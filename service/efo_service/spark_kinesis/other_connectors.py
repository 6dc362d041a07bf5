"""What options of other Kinesis connectors of Spark are called here. Pure.

Databricks, awslabs (spark-sql-kinesis-connector, with the prefix `kinesis.`) and qubole (kinesis-sql) have names of
their own; `parse` asks here for each that it does not know. docs/spark.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HERE: Final[Mapping[str, str]] = {
    "streamName": "stream",
    "streamARN": "stream",
    "endpointUrl": "endpoint",
    "startingPosition": "initialPosition",
    "consumerType": "readMode",
    "consumerMode": "readMode",
    "awsSTSRoleARN": "roleArn",
    "stsRoleArn": "roleArn",
    "roleExternalId": "externalId",
    "awsSTSSessionName": "roleSessionName",
    "stsSessionName": "roleSessionName",
    "registeredConsumerId": "consumerArn",
    "consumerNamePrefix": "consumerName",
    "maxRecordsPerFetch": "maxOffsetsPerTrigger",
    "maxFetchRecordsPerShard": "maxOffsetsPerTrigger",
    "executor.maxFetchRecordsPerShard": "maxOffsetsPerTrigger",
    "shardsPerTask": "minPartitions",
}
"""Names of others, and the option here that says the same, or what is nearest to it."""
_CREDENTIALS: Final = (
    "credentials come from where AWS's own libraries look for them on the driver (environment, profile, role): an"
    " option would be in plans and logs"
)
_PACING: Final = "efo paces its own reads within the limits of Kinesis: remove it"
_NONE: Final[Mapping[str, str]] = {
    "awsAccessKey": _CREDENTIALS,
    "awsAccessKeyId": _CREDENTIALS,
    "awsSecretKey": _CREDENTIALS,
    "maxFetchRate": _PACING,
    "minFetchPeriod": _PACING,
    "maxFetchDuration": _PACING,
    "maxFetchTimeInMs": _PACING,
    "fetchBufferSize": _PACING,
    "shardFetchInterval": _PACING,
    "describeShardInterval": _PACING,
    "coalesceThresholdBlockSize": _PACING,
    "coalesceBinSize": _PACING,
}
"""Names of others that mean nothing here, and why."""
_KNOWN: Final = {
    **{name.lower(): f"here it is {option}" for name, option in HERE.items()},
    **{name.lower(): why for name, why in _NONE.items()},
}


def hint(name: str) -> str | None:
    """Return what to do about an option of another connector; None if it is none. `name`: in lower case."""
    return _KNOWN.get(name) or _KNOWN.get(name.removeprefix("kinesis."))
