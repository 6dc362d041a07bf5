"""Sinks that fail, are slow, or freeze: what an operator is paged for is that records do not arrive."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from efo_service.object_store.url import parse_url
from proofs.incidents.disks import small_disk
from proofs.incidents.incident import Expected, Incident, in_lines, in_log, running, signalled
from proofs.local_servers import object_stores
from proofs.local_servers.kafka import read_topic, serve_kafka
from proofs.situations.situation import Cases, Outcome

cases = Cases("sinks", seconds=240)

_NOT_COMMITTED = "EfoShardsUncommitted"
_UNCOMMITTED = r'efo_shard_status\{.*efo_shard_condition="uncommitted".*\} 1'


def _full(path: Path) -> Expected:
    return Expected(
        f"not committed: .*no space to .*{path}.*free space",
        "sink_outage_began.*no space",
        _UNCOMMITTED,
        alert=_NOT_COMMITTED,
    )


@cases.case("not ready within 10 s with the path and the remedy; all arrives when there is space again")
def the_disk_of_the_log_is_full_under_a_trickle() -> Outcome:
    with small_disk() as disk, running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path) as one:
        one.play(disk.fill, _full(disk.path))
        is_alive = one.service.process.poll() is None
        disk.free()
        return one.outcome(is_right=is_alive)


@cases.case("not ready within 10 s: of the log, with its path")
def one_disk_of_the_log_and_the_leases_is_full() -> Outcome:
    with small_disk() as disk:
        leases = disk.path / "leases.sqlite"
        with running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path, LEASES__PATH=leases) as one:
            one.play(disk.fill, _full(disk.path))
            disk.free()
            return one.outcome()


@cases.case("the same words as before the restart")
def a_restart_while_the_disk_of_the_log_is_full() -> Outcome:
    with small_disk() as disk, running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path) as one:
        disk.fill()
        one.until(lambda: one.readyz()[0] != 200, 20)
        one.play(one.restart, _full(disk.path), limit=20)
        disk.free()
        return one.outcome()


@cases.case("not ready within 10 s with the path and the remedy")
def the_disk_of_the_json_lines_is_full() -> Outcome:
    with small_disk() as disk:
        file = disk.path / "lines.jsonl"
        with running(partial(in_lines, file), RELAY__SINK="jsonl", RELAY__JSONL_FILE=file) as one:
            one.play(disk.fill, _full(file))
            disk.free()
            return one.outcome()


@cases.case("the process ends with exit 69 after the time that the setting says, and not before it was reported")
def a_full_disk_with_a_limit_for_retries() -> Outcome:
    with (
        small_disk() as disk,
        running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path, RELAY__RETRY_SECONDS=12) as one,
    ):
        one.play(disk.fill, _full(disk.path))
        one.play(lambda: None, Expected(ends=69), limit=20)
        disk.free()
        one.restart()
        return one.outcome()


@cases.case("all shards are not ready, and none is current with a lag of 0 while a backlog is not stored")
def a_backlog_that_is_not_stored() -> Outcome:
    with small_disk() as disk, running(partial(in_log, disk.path), RELAY__DIRECTORY=disk.path, shards=4) as one:

        def begin() -> None:
            disk.fill()
            for number in range(2000):
                one.put_one(b"%0100d" % number)

        one.play(
            begin, Expected("4 of 4 shards .*not committed", "sink_outage_began", _UNCOMMITTED, alert=_NOT_COMMITTED)
        )
        shards = one.status()["shards"]
        lags = [shard["lag_seconds"] for shard in shards]
        one.note(f"lags {lags}, conditions {[shard['condition'] for shard in shards]}")
        disk.free()
        return one.outcome(is_right=all(lag > 3 for lag in lags), seconds=120)


@contextmanager
def _kafka() -> Iterator[Incident]:
    with serve_kafka() as servers:
        options = {"RELAY__SINK": "kafka", "RELAY__KAFKA__BOOTSTRAP_SERVERS": servers, "RELAY__TOPIC": "orders"}
        with running(lambda: len(read_topic(servers, "orders")), options) as one:
            yield one


@cases.case("not ready within 10 s: no answer, look at the brokers")
def the_broker_of_kafka_is_frozen() -> Outcome:
    with _kafka() as one:
        expected = Expected("not committed: .*", "not_ready.*not committed", _UNCOMMITTED, alert=_NOT_COMMITTED)
        one.play(lambda: signalled("java", signal.SIGSTOP), expected)
        one.until(lambda: False, 20)
        one.note(f"20 s later: {one.readyz()[0]}, {one.status()['problems'][:1]}")
        signalled("java", signal.SIGCONT)
        return one.outcome(seconds=120)


@contextmanager
def _object_log() -> Iterator[Incident]:
    with object_stores.serve_versitygw() as text:
        url, given = f"s3://{object_stores.BUCKET}/log", object_stores.running(text).options()
        os.environ |= object_stores.ENVIRONMENT
        options = {
            "RELAY__DIRECTORY": url,
            "RELAY__STORE_OPTIONS": json.dumps(given),
            "RELAY__COMMIT_SECONDS": 0.5,
        }
        with running(partial(in_log, parse_url(url, given)), options) as one:
            yield one


@cases.case("not ready within 10 s: no answer, look at the object store")
def the_object_store_is_frozen() -> Outcome:
    with _object_log() as one:
        expected = Expected("not committed: ", "not_ready.*not committed", _UNCOMMITTED, alert=_NOT_COMMITTED)
        one.play(lambda: signalled("versitygw", signal.SIGSTOP), expected)
        signalled("versitygw", signal.SIGCONT)
        return one.outcome(seconds=120)
