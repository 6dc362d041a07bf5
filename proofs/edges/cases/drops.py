"""Records that are left out: aggregates of several producers, refused records, and what commands pass over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aws_kinesis_agg.aggregator as aws_kinesis_agg
import trio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import efo
import efo.aio
import efo.sync
from efo.events import RecordDeadLettered, RecordsFiltered, RecordSkipped
from efo.protocol.aggregation import AGGREGATE_KEY, AggregateEntry, AggregateMode, aggregate, hash_key
from efo.testing import FakeKinesis, FakeKinesisThread, InMemoryStream, virtual_time
from proofs.edges.consuming import STREAM, Consumed, Reported, consume, in_virtual_time
from proofs.edges.service import run, serving
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("drops")

ENTRIES = [AggregateEntry(f"{CANARY}-key-{number}", f"{CANARY}-{number}".encode()) for number in range(20)]
PUT = Counter(entry.data for entry in ENTRIES)
POISONED = (b"1", f"{CANARY} bad".encode(), b"3")


def outcome(consumed: Consumed, put: Counter[bytes], *, is_right: bool = True, more: str = "") -> Outcome:
    """Return what was delivered: all, once each. `is_right`: and whatever else is asked for."""
    lost, repeated = consumed.lost(put), consumed.repeated(put)
    did = f"{sum(put.values())} put, {lost} lost, {repeated} repeated{more}"
    return Outcome(did, is_right=is_right and not lost and not repeated, counts={"records_lost_silently": lost})


def put_by_aws_kinesis_agg(fake: FakeKinesis, entries: Iterable[AggregateEntry]) -> None:
    aggregator = aws_kinesis_agg.RecordAggregator()
    for entry in entries:
        aggregator.add_user_record(entry.partition_key, entry.data, entry.explicit_hash_key)
    key, explicit, data = aggregator.clear_and_get().get_contents()
    fake.put(STREAM, key, bytes(data), explicit)


def put_by_kpl(fake: FakeKinesis, entries: Sequence[AggregateEntry]) -> str:
    """Put an aggregate as the KPL does; return its shard."""
    return fake.put(STREAM, AGGREGATE_KEY, aggregate(entries), str(hash_key(entries[0].partition_key)))[0]


async def put_through_a_split(fake: FakeKinesis) -> tuple[Counter[bytes], str]:
    """Split the only shard; the KPL, which does not know it, puts one aggregate, and again what is outside.

    Return what the application has put, and the shard in which copies are.
    """
    [parent] = fake.open_shards(STREAM)
    put_by_kpl(fake, ENTRIES[:10])
    children = fake.split(STREAM, parent)
    home = put_by_kpl(fake, ENTRIES[10:])
    middle = 2**127
    is_home = {entry: (hash_key(entry.partition_key) < middle) == (home == children[0]) for entry in ENTRIES[10:]}
    put_by_kpl(fake, [entry for entry, is_there in is_home.items() if not is_there])
    return PUT, home


@cases.case("every record delivered, and none filtered: no shard has had them before")
def aws_kinesis_agg_on_four_shards() -> Outcome:
    async def main() -> Outcome:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=4)
            put_by_aws_kinesis_agg(fake, ENTRIES)
            consumed = await consume(fake)
        return outcome(consumed, PUT, is_right=not consumed.reported.reported(RecordsFiltered))

    return in_virtual_time(main)


@cases.case("every record delivered: the split before says nothing about a producer that knows no shards")
def aws_kinesis_agg_after_a_split_by_polling() -> Outcome:
    async def main() -> Outcome:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=1)
            fake.split(STREAM, fake.open_shards(STREAM)[0])
            put_by_aws_kinesis_agg(fake, ENTRIES)
            consumed = await consume(fake, 60, read_mode="polling")
        return outcome(consumed, PUT)

    return in_virtual_time(main)


@cases.case("every record delivered: fluent-bit puts the aggregate under a random key")
def an_aggregate_under_a_random_key_after_a_merge() -> Outcome:
    async def main() -> Outcome:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=3)
            first, second, _ = fake.open_shards(STREAM)
            fake.merge(STREAM, first, second)
            for number in range(8):
                again = [AggregateEntry(e.partition_key, e.data + b"/%d" % number) for e in ENTRIES]
                fake.put(STREAM, f"{number * 7919:08x}", aggregate(again))
            put = Counter(e.data + b"/%d" % number for e in ENTRIES for number in range(8))
            consumed = await consume(fake, 60)
        return outcome(consumed, put)

    return in_virtual_time(main)


@cases.case("each record once: copies in the shard of the first put are filtered out, counted, and one line says so")
def the_kpl_puts_again_after_a_split() -> Outcome:
    async def main() -> Outcome:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=1)
            put, home = await put_through_a_split(fake)
            for number in range(5):  # it goes on with its old map
                more = [AggregateEntry(e.partition_key, e.data + b"/%d" % number) for e in ENTRIES]
                more.sort(key=lambda e: hash_key(e.partition_key))  # so the first is in the lower half
                put_by_kpl(fake, more)
                put_by_kpl(fake, [e for e in more if hash_key(e.partition_key) >= 2**127])
                put = put + Counter(e.data for e in more)
            reader = InMemoryMetricReader()
            meter = efo.telemetry.OtelObserver(
                stream=STREAM, application="edges", meter_provider=MeterProvider(metric_readers=[reader])
            )
            consumed = await consume(fake, 60)
            for event in consumed.reported.events:
                meter(event)
        counted = sum(event.records for event in consumed.reported.reported(RecordsFiltered))
        lines = consumed.reported.lines_with("filtered out")
        shards = {event.shard_id for event in consumed.reported.reported(RecordsFiltered)}
        return outcome(
            consumed,
            put,
            is_right=counted > 0 and home in shards and len(lines) == len(shards) and _counted(reader) == counted,
            more=f", {counted} copies filtered out in {len(lines)} lines, metric {_counted(reader)}",
        )

    return in_virtual_time(main)


def _counted(reader: InMemoryMetricReader) -> float:
    data = reader.get_metrics_data()
    metrics = (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics) if data else ()
    return sum(
        point.value  # type: ignore[union-attr, misc] # of a counter
        for metric in metrics
        if metric.name == "efo.record.filtered"
        for point in metric.data.data_points
    )


@cases.case("nothing lost: of a shard whose ancestors are unknown, all is delivered, rather twice than never")
def the_parent_is_gone_and_its_lease_too() -> Outcome:
    async def main() -> Outcome:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=1)
            await trio.sleep(60)
            fake.split(STREAM, fake.open_shards(STREAM)[0])
            fake.retain(STREAM, 20 / 3600)
            await trio.sleep(60)  # now the parent is not listed
            home = put_by_kpl(fake, ENTRIES)
            consumed = await consume(fake, 60)
        lost = consumed.lost(PUT)
        did = f"{lost} lost, {consumed.repeated(PUT)} repeated of an aggregate in {home}"
        return Outcome(did, is_right=lost == 0, counts={"records_lost_silently": lost})

    return in_virtual_time(main)


def _asked_for(mode: AggregateMode) -> Outcome:
    async def main() -> Outcome:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=4)
            for number in range(3):
                put_by_aws_kinesis_agg(
                    fake, [AggregateEntry(e.partition_key, e.data + b"/%d" % number) for e in ENTRIES]
                )
            consumed = await consume(fake, aggregates=mode)
        put = Counter(e.data + b"/%d" % number for e in ENTRIES for number in range(3))
        lost = consumed.lost(put)
        counted = sum(event.records for event in consumed.reported.reported(RecordsFiltered))
        lines = consumed.reported.lines_with("deduplicate delivers them")
        did = f"{lost} of {sum(put.values())} left out, {counted} counted, {len(lines)} lines"
        silent = lost - counted
        is_right = lost > 0 and silent == 0 and len(lines) == 1
        return Outcome(did, is_right=is_right, counts={"records_lost_silently": silent})

    return in_virtual_time(main)


@cases.case("what is left out because it was asked for is counted, and one line says what to set")
def the_filter_is_asked_for() -> Outcome:
    return _asked_for(AggregateMode.FILTER)


@cases.case("as KCL does: the whole aggregate is left out, counted, and one line says what to set")
def dropping_is_asked_for() -> Outcome:
    return _asked_for(AggregateMode.DROP)


@cases.case("the records that were left out are in the log, in /metrics and, as long as it goes on, in /status")
def a_service_that_filters() -> Outcome:
    with FakeKinesisThread() as fake:
        fake.create_stream(STREAM, 4)
        fake.call(lambda kinesis: put_by_aws_kinesis_agg(kinesis, ENTRIES))
        with serving(fake, CONSUMER__AGGREGATES="filter") as service:
            line = service.until(lambda: service.named("records_filtered"))
            sentence = service.until(lambda: [p for p in service.problems() if "filtered out" in p])
            metrics = service.get("/metrics")
    left_out = line[0]["records"] if line else 0
    counted = sum(
        float(value)
        for value in re.findall(r'^efo_record_filtered_total\{.*mode="filter".*\} (.*)$', metrics, re.MULTILINE)
    )
    did = f"{left_out} left out; {counted:g} in the metric; /status: {sentence[0] if sentence else 'nothing'}"
    is_right = left_out > 0 and counted == left_out and bool(sentence)
    return Outcome(did, is_right=is_right, counts={"records_lost_silently": 0 if is_right else left_out})


@cases.case("records older than the limit are in the log, in /metrics and in /status, and the ones after them arrive")
def a_service_with_a_limit_of_age() -> Outcome:
    with FakeKinesisThread() as fake:
        fake.create_stream(STREAM, 1)
        for number in range(5):
            fake.put(STREAM, f"{CANARY}-key", b"%d" % number)
        with serving(fake, RELAY__MAX_RECORD_AGE_SECONDS=0.001) as service:
            line = service.until(lambda: service.named("records_dropped"))
            sentence = service.until(lambda: [p for p in service.problems() if "max_record_age_seconds" in p])
            metrics = service.get("/metrics")
    reported = line[0]["records"] if line else 0
    counted = sum(map(float, re.findall(r'^efo_record_dropped_total\{.*"too_old".*\} (.*)$', metrics, re.MULTILINE)))
    did = f"{reported} reported, {counted:g} in the metric; /status: {sentence[0] if sentence else 'nothing'}"
    is_right = bool(line and sentence) and counted == len("01234")
    return Outcome(did, is_right=is_right, counts={"records_lost_silently": 0 if is_right else 5})


def _skipped(reported: Reported, processed: Sequence[bytes], how: type[RecordSkipped | RecordDeadLettered]) -> Outcome:
    passed = len(reported.reported(how))
    lines = reported.lines_with("was skipped") + reported.lines_with("was dead-lettered")
    did = f"{passed} events, {len(lines)} lines; the checkpoint passed {len(processed)} records"
    is_right = passed == 1 and len(lines) == 1 and len(processed) == len(POISONED)
    return Outcome(did, is_right=is_right, counts={"records_lost_silently": 0 if is_right else 1})


def _poisoned() -> InMemoryStream:
    stream = InMemoryStream()
    stream.put("key", *POISONED)
    return stream


def _refuse(batch: efo.Batch) -> None:
    if any(b"bad" in record.data for record in batch):
        raise ValueError(f"cannot handle {CANARY}")


@cases.case("a record that a handler of open_consumer skips is a line and an event of the consumer")
def a_handler_skips_on_trio() -> Outcome:
    async def handle(batch: efo.Batch) -> None:
        _refuse(batch)

    async def main() -> Outcome:
        stream, reported = _poisoned(), Reported()
        async with (
            stream.open() as kinesis,
            efo.open_consumer(kinesis, application="a", leases=stream.leases, observer=reported.observer) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, efo.Handler(handle, on_error=efo.FailurePolicy(then="skip")))
            await trio.sleep(30)
            consumer.drain()
        return _skipped(reported, stream.processed(), RecordSkipped)

    return in_virtual_time(main)


@cases.case("so is one that a record processor of efo.sync dead-letters")
def a_processor_dead_letters_in_synchronous_code() -> Outcome:
    dead_letters: list[efo.DeadLetter] = []

    class Processor(efo.sync.RecordProcessor):
        def process_records(self, batch: efo.Batch, checkpointer: efo.Checkpointer) -> None:
            _refuse(batch)
            checkpointer.checkpoint()
            if any(record.data == b"3" for record in batch):
                consumer.drain()

    stream, reported = _poisoned(), Reported()
    policy = efo.FailurePolicy(then="dead_letter", dead_letter=efo.in_thread(dead_letters.append))
    options: dict[str, Any] = {"application": "a", "leases": stream.leases, "observer": reported.observer}
    with virtual_time(), efo.sync.open_consumer(stream.open(), **options) as consumer:
        consumer.run(efo.sync.ProcessorReader(Processor, on_error=policy))
    found = _skipped(reported, stream.processed(), RecordDeadLettered)
    return Outcome(
        f"{found.did}; {len(dead_letters)} dead_letters", found.is_right and len(dead_letters) == 1, found.counts
    )


@cases.case("empty lines, which Kinesis does not take, are counted in the summary")
def put_with_empty_lines() -> Outcome:
    with FakeKinesisThread() as fake:
        fake.create_stream(STREAM, 1)
        lines = [f"{CANARY} one", "", "", f"{CANARY} two"]
        Path("lines").write_text("\n".join(lines))
        done = run(fake, "put", STREAM, "lines")
        stored = [record for records in fake.records(STREAM).values() for record in records]
    said = done.stderr.strip().splitlines()[-1] if done.stderr else ""
    is_right = len(stored) == lines.count("") and f"empty lines left out: {lines.count('')}" in said
    return Outcome(f"stored {len(stored)}: {said}", is_right=is_right)


@cases.case("tail shows every record of an aggregate of another producer")
def tail_of_another_producers_aggregate() -> Outcome:
    with FakeKinesisThread() as fake:
        fake.create_stream(STREAM, 4)
        fake.put(STREAM, "random", aggregate([AggregateEntry(f"key-{n}", b"%d" % n) for n in range(len(ENTRIES))]))
        done = run(fake, "tail", STREAM, "--from", "trim_horizon", "--until", "now", "--json")
    shown = len(done.stdout.splitlines())
    return Outcome(f"{shown} of {len(ENTRIES)} shown", is_right=shown == len(ENTRIES))


def _has_segments(count: int) -> bool:
    return len(list(Path("log").rglob("*.arrow"))) >= count


@cases.case("missing records of the log that an export passes over are reported, with their offsets")
def export_with_a_gap() -> Outcome:
    with FakeKinesisThread() as fake:
        fake.create_stream(STREAM, 1)
        with serving(fake, RELAY__MAINTENANCE_SECONDS="3600") as service:
            for number in range(3):
                fake.put(STREAM, "key", f"{CANARY} {number}".encode())
                service.until(partial(_has_segments, number + 1))
        segments = sorted(Path("log").rglob("*.arrow"))
        segments[1].unlink()
        done = run(
            fake, "log", "export", "--directory", "log", "--topic", STREAM, "--allow-gaps", "--output", "exported"
        )
    reported = [line for line in done.stderr.splitlines() if "are missing" in line]
    exported = len(Path("exported").read_text().splitlines())
    is_right = exported == len(segments) - 1 and len(reported) == 1
    lost = 0 if reported else 1
    return Outcome(f"{exported} exported; {reported}", is_right=is_right, counts={"records_lost_silently": lost})
