"""Records that no sink takes: isolated shards, what they say, and how one is skipped while the service runs."""

from __future__ import annotations

import re
from functools import partial

from proofs.edges.service import run
from proofs.incidents.incident import Expected, Incident, in_lines, running
from proofs.situations.situation import Cases, Outcome

cases = Cases("shards", seconds=240)

_FILE = "lines.jsonl"
_OPTIONS = {"RELAY__SINK": "jsonl", "RELAY__JSONL_FILE": _FILE, "RELAY__JSONL_ENCODING": "utf-8"}
_POISON = b"\xff\xfe not UTF-8"
_ISOLATED = r'efo_shard_status\{.*efo_shard_condition="isolated".*\} 1'
_SKIP = r"efo leases reset (shardId-\d+) --to (\d+)"


def _skip(one: Incident, **options: object) -> None:
    """Call the commands that the problems have, while the service runs."""
    for problem in one.status()["problems"]:
        if found := re.search(_SKIP, problem):
            done = run(one.kinesis, "leases", "reset", found[1], "--to", found[2], "--yes", **options)
            one.note(f"{found[0]}: exit {done.returncode}")


@cases.case("the service stays ready for its other shards; the problem names record, reason and command, which works")
def a_record_that_the_sink_refuses() -> Outcome:
    options = {**_OPTIONS, "LEASES__PATH": "leases.sqlite", "CONSUMER__SHARD_COOLDOWN_SECONDS": 20}
    with running(partial(in_lines, _FILE), options, shards=4) as one:
        expected = Expected(
            rf"isolated at record \d+.*UTF-8.*tries again in .*{_SKIP}", "shard_isolated", _ISOLATED,
            alert="EfoShardsIsolated", obstacle="",
        )  # fmt: skip
        one.play(lambda: one.put_one(_POISON), expected)
        _skip(one, **options)
        one.put -= 1  # the skipped record
        return one.outcome()


@cases.case("not ready: nothing is read")
def all_shards_are_isolated() -> Outcome:
    options = {**_OPTIONS, "LEASES__PATH": "leases.sqlite", "CONSUMER__SHARD_COOLDOWN_SECONDS": 20}
    with running(partial(in_lines, _FILE), options, shards=1) as one:
        expected = Expected(rf"isolated at record \d+.*{_SKIP}", "not_ready|shard_isolated", alert="EfoShardsIsolated")
        one.play(lambda: one.put_one(_POISON), expected)
        _skip(one, **options)
        one.put -= 1
        return one.outcome()


@cases.case("a page; the service stays ready")
def records_are_skipped_by_a_setting() -> Outcome:
    options = {**_OPTIONS, "RELAY__ON_REFUSED_RECORD": "skip"}
    with running(partial(in_lines, _FILE), options) as one:
        metric = r'efo_record_failures_total\{.*efo_failure_action="skip".*\} 1'
        expected = Expected("", "record_skipped", metric, alert="EfoRecordsSkipped", obstacle="")
        one.play(lambda: one.put_one(_POISON), expected)
        one.put -= 1
        return one.outcome()


@cases.case("a page; the service stays ready, and the records are in their topic")
def records_are_dead_lettered() -> Outcome:
    options = {**_OPTIONS, "RELAY__DEAD_LETTERS": "refused", "RELAY__DIRECTORY": "log"}
    with running(partial(in_lines, _FILE), options) as one:
        metric = r'efo_record_failures_total\{.*efo_failure_action="dead_letter".*\} 1'
        expected = Expected("", "record_dead_lettered", metric, alert="EfoRecordsDeadLettered", obstacle="")
        one.play(lambda: one.put_one(_POISON), expected)
        one.put -= 1
        return one.outcome()


@cases.case("a problem of a ready service: it was paused by an operator")
def an_operator_has_paused_nothing_and_the_drain_is_reported() -> Outcome:
    with running() as one:
        one.play(one.service.process.terminate, Expected(ends=0))
        one.restart()
        return one.outcome()
