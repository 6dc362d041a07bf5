"""A stream that was deleted and created again, as its operator meets it: the service, and each command (rule R15)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Timer

import pytest

from efo.testing import FakeKinesisThread, FakeSettings
from efo_service.cli import call
from efo_service.exit_codes import Exit
from tests.environment import use_fake

LONG = 120.0
"""Seconds after which a service that neither ends nor does what it is to do is killed."""


ages: list[float] = []
"""Seconds by which the clock of the fake is slow: two streams that are created within a second look like one."""


@pytest.fixture
def kinesis() -> Iterator[FakeKinesisThread]:
    thread = FakeKinesisThread(settings=FakeSettings(stream_deleting=0.0))
    ages[:] = [10.0]
    thread._make = partial(thread._make, clock=lambda: time.time() - ages[0])
    with thread as fake:
        fake.create_stream("orders", shards=2)
        put(fake, b"old")
        yield fake


def put(fake: FakeKinesisThread, text: bytes) -> None:
    fake.put_many("orders", [(f"k{n}", text + b"-%d" % n) for n in range(8)])


def recreate(fake: FakeKinesisThread, shards: int = 2) -> None:
    fake.call(lambda inner: inner.delete_stream("orders"))
    ages[:] = [0.0]
    fake.create_stream("orders", shards=shards)
    put(fake, b"new")


@pytest.fixture(autouse=True)
def environment(kinesis, tmp_path, monkeypatch):
    use_fake(
        monkeypatch,
        kinesis,
        KINESIS__STREAM="orders",
        CONSUMER__READ_MODE="polling",
        CONSUMER__CHECKPOINT_SECONDS=1,
        LEASES__PATH=tmp_path / "leases.sqlite",
        LEASES__FAILOVER_SECONDS=1,
        RELAY__DIRECTORY=tmp_path / "log",
        SERVICE__PORT=0,
    )


def run(*, until: Callable[[], bool] = lambda: False) -> tuple[int, str]:
    """Run the service until it ends or `until` says so at one of its lines; return its exit code and its output."""
    command = [sys.executable, "-m", "efo_service.cli", "run"]
    lines: list[bytes] = []
    environment = {**os.environ, "EFO_SERVICE__LOG_LEVEL": "debug"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as child:
        timer = Timer(LONG, child.kill)
        timer.start()
        is_asked = False
        for line in child.stdout:
            lines.append(line)
            if not is_asked and until():
                is_asked = True
                child.send_signal(signal.SIGTERM)
        timer.cancel()
    return child.returncode, b"".join(lines).decode()


def values(capsys) -> list[str]:
    """Return the values in the log, in the order of their partitions."""
    capsys.readouterr()
    if call(["log", "export", "--topic", "orders", "--encoding", "utf-8"]) != Exit.OK:
        return []
    return [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def relayed(kinesis, capsys):
    """Relay the stream, and create it again. Return a function that relays until there are so many new records."""

    def until(prefix: str) -> tuple[int, str]:
        return run(until=lambda: sum(value.startswith(prefix) for value in values(capsys)) == 8)

    code, printed = until("old")
    assert code == Exit.OK, printed
    recreate(kinesis)
    return lambda: until("new")


def test_the_service_ends_with_one_sentence_and_78_and_every_command_tells_the_same(relayed, capsys):
    code, printed = relayed()
    assert code == Exit.CONFIGURATION
    reported = [line for line in printed.splitlines() if "was deleted and created again" in line]
    logged, sentence = [line for line in reported if '"level": "debug"' not in line]
    fields = json.loads(logged)
    assert (fields["event"], fields["error_type"], fields["level"]) == ("failed", "stream_recreated", "error")
    assert sentence == f"efo: {fields['message']}"
    assert "efo leases reset --all --to trim_horizon" in sentence
    assert "Traceback" not in printed
    assert "new-0" not in values(capsys)

    assert call(["doctor", "--json", "--timeout", "60"]) == Exit.CONFIGURATION
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["stream identity"]["result"] == "failed"
    assert "deleted and created again" in json.dumps(checks["stream identity"])

    assert call(["log", "verify"]) == 1
    verified = capsys.readouterr().out
    assert "'orders' was deleted and created again" in verified
    assert "efo log adopt" in verified


def test_a_reset_of_all_leases_and_another_topic_heal_it(relayed, capsys, monkeypatch):
    assert call(["leases", "reset", "shardId-000000000000", "--to", "trim_horizon", "--yes"]) == Exit.OK
    capsys.readouterr()
    assert call(["leases", "reset", "shardId-000000000000", "--to", "latest", "--yes"]) == Exit.USAGE
    assert "reset all leases: --all" in capsys.readouterr().err
    assert relayed()[0] == Exit.CONFIGURATION
    assert call(["leases", "reset", "--all", "--to", "trim_horizon", "--yes", "--json"]) == Exit.OK
    output = capsys.readouterr()
    assert json.loads(output.out) == {"reset": ["shardId-000000000000", "shardId-000000000001"]}
    assert "the relay refuses those of the former stream" in output.err
    code, printed = relayed()  # the log still has the positions of the former stream, and the position of a sink wins
    assert code == Exit.CONFIGURATION
    assert "set another [relay] topic; or stop the relay and run `efo log adopt`" in printed
    monkeypatch.setenv("EFO_RELAY__TOPIC", "orders-2")
    capsys.readouterr()

    def is_relayed() -> bool:
        capsys.readouterr()
        call(["log", "export", "--topic", "orders-2", "--encoding", "utf-8"])
        return capsys.readouterr().out.count("new-") == 8

    assert run(until=is_relayed)[0] == Exit.OK
    assert call(["log", "verify", "--topic", "orders-2"]) == Exit.OK
    assert call(["doctor", "--json", "--timeout", "60"]) == Exit.OK


def test_a_reset_and_an_adoption_heal_it_and_keep_the_topic(relayed, capsys):
    assert call(["leases", "reset", "--all", "--to", "trim_horizon", "--yes"]) == Exit.OK
    assert call(["log", "adopt"]) == Exit.USAGE  # there is no terminal to ask
    assert "the 2 partitions of the stream that was created at" in capsys.readouterr().err
    assert call(["log", "adopt", "--yes", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"adopted": {}, "continued": True}
    assert call(["log", "adopt", "--yes"]) == Exit.OK
    assert "nothing to adopt" in capsys.readouterr().out
    assert relayed()[0] == Exit.OK
    found = values(capsys)
    assert sorted(found) == sorted([f"old-{n}" for n in range(8)] + [f"new-{n}" for n in range(8)])
    assert call(["log", "verify"]) == Exit.OK
    assert call(["doctor", "--json", "--timeout", "60"]) == Exit.OK


def test_deleted_leases_and_an_adoption_heal_it_too(relayed, capsys):
    assert call(["leases", "delete", "--all", "--yes"]) == Exit.OK
    code, _ = relayed()  # it makes leases of the stream that is there, and the log refuses it
    assert code == Exit.CONFIGURATION
    assert call(["log", "adopt", "--yes"]) == Exit.OK
    capsys.readouterr()
    assert relayed()[0] == Exit.OK
    assert sum(value.startswith("new") for value in values(capsys)) == 8


def test_a_table_of_an_earlier_version_is_taken_over_and_named(kinesis, capsys, tmp_path):
    """Its rows name no stream; nothing contradicts them, so they are of the stream that is there."""
    import sqlite3  # noqa: PLC0415 - of this test alone

    first = run(until=lambda: len(values(capsys)) == 8)
    assert first[0] == Exit.OK
    with sqlite3.connect(tmp_path / "leases.sqlite") as connection:
        connection.execute("UPDATE lease SET stream_created_at = NULL, unread_since = NULL")
    connection.close()
    put(kinesis, b"more")
    assert run(until=lambda: len(values(capsys)) == 16)[0] == Exit.OK
    capsys.readouterr()
    assert call(["leases", "list", "--json"]) == Exit.OK
    leases = json.loads(capsys.readouterr().out)["leases"]
    assert {lease["stream_created_at"] is None for lease in leases} == {False}


def test_leases_of_a_former_stream_are_exported_with_it_and_an_import_of_the_present_one_replaces_them(
    relayed, kinesis, capsys, tmp_path
):
    exported = str(tmp_path / "leases.json")
    assert call(["leases", "export", "--output", exported]) == Exit.OK
    assert call(["leases", "reset", "--all", "--to", "trim_horizon", "--yes"]) == Exit.OK
    present = str(tmp_path / "present.json")
    assert call(["leases", "export", "--output", present]) == Exit.OK
    assert call(["leases", "import", exported, "--overwrite", "--yes"]) == Exit.OK
    assert relayed()[0] == Exit.CONFIGURATION
    assert call(["leases", "import", present, "--overwrite", "--yes"]) == Exit.OK
    assert call(["log", "adopt", "--yes"]) == Exit.OK
    assert relayed()[0] == Exit.OK
