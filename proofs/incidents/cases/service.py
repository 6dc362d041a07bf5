"""The process that is killed, records that are no records, and what goes on in another way than was asked for."""

from __future__ import annotations

from efo.protocol.aggregation import AggregateEntry, aggregate
from efo.testing import ALWAYS, When
from efo.testing.faults import EndStream, Refuse
from proofs.edges.service import STREAM
from proofs.incidents.incident import Expected, running
from proofs.situations.situation import Cases, Outcome

cases = Cases("service", seconds=240)


@cases.case("a page: it does not answer; what it had not committed is read again")
def the_process_is_killed() -> Outcome:
    with running() as one:
        one.play(one.service.process.kill, Expected(ends=-9, alert="EfoTargetDown"))
        one.restart()
        return one.outcome()


@cases.case("a page; the service stays ready, and hands the aggregate on whole")
def a_producer_puts_damaged_aggregates() -> Outcome:
    with running() as one:
        expected = Expected("", "aggregate_damaged", "efo_decode_errors_total", alert="EfoDecodeErrors", obstacle="")
        one.play(lambda: one.put_one(aggregate([AggregateEntry("p" * 300, b"")] * 3)), expected)
        return one.outcome()


@cases.case("a problem of a ready service, and a page: they are lost unless their producer puts them again")
def records_of_aggregates_are_filtered_out() -> Outcome:
    with running(shards=4, CONSUMER__AGGREGATES="filter") as one:
        expected = Expected(
            "filtered out", "filtered", "efo_record_filtered_total", alert="EfoRecordsFiltered", obstacle=""
        )
        one.play(
            lambda: one.put_one(aggregate([AggregateEntry(f"key-{number}", b"") for number in range(20)])), expected
        )
        one.put -= 1
        return one.outcome()


@cases.case("a problem of a ready service: polled, and which permissions fan-out needs")
def fan_out_is_denied_and_the_shards_are_polled() -> Outcome:
    with running(CONSUMER__READ_MODE="auto") as one:

        def begin() -> None:
            one.kinesis.inject(Refuse("AccessDeniedException"), When(operation="SubscribeToShard", times=ALWAYS))
            one.kinesis.inject(EndStream(), When(stream=STREAM, times=1))

        expected = Expected(
            "so the shards are polled .*permit kinesis:SubscribeToShard",
            "read_mode_changed",
            r'efo_shard_status\{.*efo_shard_read_mode="polling".*\} 1',
            obstacle="",
        )
        one.play(begin, expected)
        return one.outcome()
