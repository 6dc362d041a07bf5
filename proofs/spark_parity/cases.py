"""The rows of the comparison: each is a query with options that both sources take, and what must be alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

TOPIC: Final = "orders"
RECORDS: Final = (400, 200)
"""The records of each partition."""
BEGAN: Final = 1_700_000_000_000
"""When the first record of each partition arrived, in milliseconds. Each next one arrived 10 ms later."""
STEP: Final = 10
LATE: Final = 20
"""The records that come while a query of the mode "continuous" runs, in partition 0."""

Mode = Literal["batch", "available now", "continuous"]
"""How the query runs. "continuous": with a trigger of its own, until it has read all."""
Alike = Literal["rows", "batches", "tasks", "rows, efo's tasks", "refusal"]
"""What must be alike: the rows; also the micro-batches; also, at least as many tasks as asked for, of both or of efo,
where Kafka's source does not do what it documents; both refuse."""


@dataclass(frozen=True)
class Case:
    """A row of the table.

    `option`: what it is about, as documented. `options`: of both sources. `alike`: what must be. `tasks`: the least
    number of tasks. `rows`: how many rows it reads, so that two empty results do not pass by mistake.
    """

    option: str
    name: str
    rows: int
    options: Mapping[str, str]
    mode: Mode = "batch"
    alike: Alike = "rows"
    tasks: int = 1
    selection: Mapping[str, str] = field(default_factory=lambda: {"subscribe": TOPIC})


def _each(first: int, second: int) -> str:
    return json.dumps({TOPIC: {"0": first, "1": second}})


def _at(index: int) -> str:
    """Return the time of the record of this index, in each partition."""
    return str(BEGAN + index * STEP)


ALL: Final = sum(RECORDS)
EARLIEST: Final = {"startingOffsets": "earliest"}
STREAM: Final[Mode] = "available now"
CASES: Final = (
    Case("subscribe", "one topic", ALL, {}),
    Case("subscribePattern", "a pattern", ALL, {}, selection={"subscribePattern": "ord.*s"}),
    Case("assign", "one partition", RECORDS[1], {}, selection={"assign": json.dumps({TOPIC: [1]})}),
    Case("startingOffsets", "earliest, in a batch", ALL, EARLIEST),
    Case("startingOffsets", "offsets, -2 and -1", RECORDS[0], {"startingOffsets": _each(-2, RECORDS[1])}),
    Case("startingOffsets", "latest is refused in a batch", 0, {"startingOffsets": "latest"}, alike="refusal"),
    Case("startingOffsets", "offsets, in a stream", 40, {"startingOffsets": _each(380, 180)}, STREAM),
    Case("startingOffsets", "latest, in a stream", 0, {"startingOffsets": "latest"}, STREAM),
    Case("startingOffsets", "beyond the end in a batch is refused", 0,
         {"startingOffsets": _each(9, 9), "endingOffsets": _each(8, 9)}, alike="refusal"),
    Case("endingOffsets", "offsets, and -1", 10 + RECORDS[1], {"endingOffsets": _each(10, -1)}),
    Case("endingOffsets", "earliest is refused", 0, {"endingOffsets": "earliest"}, alike="refusal"),
    Case("endingOffsets", "refused in a stream", 0, {"endingOffsets": "latest"}, STREAM, "refusal"),
    Case("startingTimestamp", "between two records", 2 * 99, {"startingTimestamp": str(BEGAN + 100 * STEP + 1),
         "endingOffsets": _each(200, 200)}),
    Case("startingTimestamp", "at a record, in a stream", 300 + 100, {"startingTimestamp": _at(100)}, STREAM),
    Case("startingTimestamp", "goes before offsets", 300 + 100, {"startingTimestamp": _at(100), **EARLIEST}),
    Case("startingOffsetsByTimestamp", "of each partition", 390 + 150,
         {"startingOffsetsByTimestamp": _each(int(_at(10)), int(_at(50)))}),
    Case("startingOffsetsByTimestamp", "in a stream", 390 + 150,
         {"startingOffsetsByTimestamp": _each(int(_at(10)), int(_at(50)))}, STREAM),
    Case("startingOffsetsByTimestampStrategy", "error: no such record is refused", 0,
         {"startingTimestamp": _at(300)}, alike="refusal"),
    Case("startingOffsetsByTimestampStrategy", "latest: no such record is the end", 100,
         {"startingTimestamp": _at(300), "startingOffsetsByTimestampStrategy": "latest"}),
    Case("endingTimestamp", "before that record", 2 * 100, {"endingTimestamp": _at(100)}),
    Case("endingTimestamp", "after the last is the end", 300 + RECORDS[1], {"endingTimestamp": _at(300)}),
    Case("endingOffsetsByTimestamp", "of each partition", 10 + 50,
         {"endingOffsetsByTimestamp": _each(int(_at(10)), int(_at(50)))}),
    Case("maxOffsetsPerTrigger", "in micro-batches", ALL, {**EARLIEST, "maxOffsetsPerTrigger": "150"}, STREAM,
         "batches"),
    Case("minOffsetsPerTrigger", "waits for more, until maxTriggerDelay", ALL + LATE,
         {**EARLIEST, "minOffsetsPerTrigger": "100", "maxTriggerDelay": "5s"}, "continuous", "batches"),
    Case("minPartitions", "at least so many tasks", ALL, {"minPartitions": "7"}, alike="tasks", tasks=7),
    Case("maxRecordsPerPartition", "tasks of at most so many records", ALL, {"maxRecordsPerPartition": "100"},
         alike="rows, efo's tasks", tasks=6),  # Kafka's source of Spark 4.3.0 ignores it in a batch
    Case("includeHeaders", "with headers", ALL, {"includeHeaders": "true"}),
    Case("failOnDataLoss", "false, and nothing is lost", ALL, {"failOnDataLoss": "false"}),
)  # fmt: skip
