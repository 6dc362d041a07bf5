"""Runs each query on Kafka's source and on efo's, and compares."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from efo.model import Record
from efo_service.spark.pipeline.pipeline import MAX_RETRIES, WORKER_TIMEOUT
from efo_service.spark.pipeline.progress import behind_latest
from proofs.spark_parity.cases import ALL, BEGAN, CASES, LATE, RECORDS, STEP, Case
from proofs.spark_parity.records import append, copy, rows_of

PATIENCE: Final = 120.0
BEHIND: Final = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")


@dataclass(frozen=True)
class Answer:
    """What a source did. `batches`: the rows of each micro-batch. `refused`: why, empty if it did not refuse."""

    rows: tuple[Any, ...] = ()
    batches: tuple[int, ...] = ()
    tasks: int = 0
    behind: tuple[dict[str, str], ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Result:
    """A row of the table: what differs, empty if nothing does."""

    case: Case
    differs: str
    efo: Answer
    kafka: Answer


class Sources:
    """Both sources with the same records."""

    def __init__(self, spark: SparkSession, root: Path, servers: str) -> None:
        self.spark = spark
        self.root = root
        self.servers = servers

    def compare(self, cases: tuple[Case, ...] = CASES) -> Iterator[Result]:
        """Yield the result of each case. Those that add records come last."""
        for case in sorted(cases, key=lambda case: case.mode == "continuous"):
            efo, kafka = self.ask("efo", case), self.ask("kafka", case)
            yield Result(case, difference(case, efo, kafka), efo, kafka)

    def ask(self, source: str, case: Case) -> Answer:
        """Return what a source does in a case. `source`: efo or kafka."""
        for attempt in range(MAX_RETRIES + 1):
            try:
                return self._batch(source, case) if case.mode == "batch" else self._stream(source, case)
            except PySparkException as error:
                if WORKER_TIMEOUT not in str(error) or attempt == MAX_RETRIES:
                    return Answer(refused=reason(error))
        raise AssertionError

    def _reader(self, source: str, case: Case) -> Any:
        spark = self.spark.read if case.mode == "batch" else self.spark.readStream
        reader = spark.format(source).options(**case.selection, **case.options)
        return reader if source == "efo" else reader.option("kafka.bootstrap.servers", self.servers)

    def _load(self, source: str, case: Case) -> DataFrame:
        reader = self._reader(source, case)
        frame: DataFrame = reader.load(str(self.root)) if source == "efo" else reader.load()
        return frame

    def _batch(self, source: str, case: Case) -> Answer:
        frame = self._load(source, case)
        return Answer(sorted_rows(frame.collect()), tasks=frame.rdd.getNumPartitions())

    def _stream(self, source: str, case: Case) -> Answer:
        """Run a stream. One of the mode "continuous" gets a few records more when it has read the others."""
        rows: list[Any] = []
        writer = self._load(source, case).writeStream.foreachBatch(lambda frame, _number: rows.extend(frame.collect()))
        is_continuous = case.mode == "continuous"
        trigger = {"processingTime": "200 milliseconds"} if is_continuous else {"availableNow": True}
        query = writer.trigger(**trigger).start()
        try:
            if is_continuous:
                _until(query, lambda: _reported(query) >= ALL)
                self._grow(source)
                _until(query, lambda: _reported(query) >= case.rows)
            else:
                query.awaitTermination()
            reports = [one for one in query.recentProgress if one["numInputRows"]]
        finally:
            query.stop()
        behind = () if is_continuous else tuple(_behind(source, report["sources"][0]) for report in reports)
        return Answer(sorted_rows(rows), tuple(report["numInputRows"] for report in reports), behind=behind)

    def _grow(self, source: str) -> None:
        """Add a few records to the log, or those of the log to the topic."""
        start = RECORDS[0]
        if source == "kafka":
            copy(rows_of(self.root, 0, start), self.servers)
            return
        late = range(start, start + LATE)
        append(self.root, 0, [Record(str(10**20 + n), (BEGAN + n * STEP) / 1000, b"0/%d" % n, "late") for n in late])


def _reported(query: Any) -> int:
    """Return how many rows a query has reported, which it does after it has written them."""
    return sum(report["numInputRows"] for report in query.recentProgress)


def _until(query: Any, done: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if not query.isActive:
            query.awaitTermination()  # raises its error
        if time.monotonic() > deadline:
            raise TimeoutError(f"a query reads too little after {PATIENCE:g} s")
        time.sleep(0.1)


def _behind(source: str, report: Any) -> dict[str, str]:
    found = report["metrics"] if source == "kafka" else behind_latest(report)
    return {name: f"{float(found[name]):g}" for name in BEHIND} if found else {}


def sorted_rows(rows: list[Any]) -> tuple[Any, ...]:
    """Return rows in the order of partitions and offsets."""
    return tuple(sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"])))


def reason(error: Exception) -> str:
    """Return the line of an error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line or "Exception" in line), lines[0])[:300]


def difference(case: Case, efo: Answer, kafka: Answer) -> str:
    """Return what differs, or what is not as the case says; empty if nothing."""
    return next(_differences(case, efo, kafka), "")


def _differences(case: Case, efo: Answer, kafka: Answer) -> Iterator[str]:
    answers = {"efo": efo, "Kafka's source": kafka}
    if case.alike == "refusal":
        yield from (f"{name} did not refuse" for name, answer in answers.items() if not answer.refused)
        return
    yield from (f"{name} refused: {answer.refused}" for name, answer in answers.items() if answer.refused)
    if efo.rows != kafka.rows:
        yield f"{len(efo.rows)} rows, Kafka's source {len(kafka.rows)}"
    if len(efo.rows) != case.rows:
        yield f"both read {len(efo.rows)} rows, expected {case.rows}"
    if case.alike == "batches" and efo.batches != kafka.batches:
        yield f"micro-batches of {efo.batches}, Kafka's source {kafka.batches}"
    if efo.behind != kafka.behind:
        yield f"progress {efo.behind}, Kafka's source {kafka.behind}"
    tasks = min(efo.tasks, kafka.tasks) if case.alike == "tasks" else efo.tasks
    if "tasks" in case.alike and tasks < case.tasks:
        yield f"{efo.tasks} tasks, Kafka's source {kafka.tasks}, expected {case.tasks}"


def row_of(result: Result) -> dict[str, Any]:
    """Return a result for JSON."""
    return {"option": result.case.option, "case": result.case.name, "differs": result.differs}
