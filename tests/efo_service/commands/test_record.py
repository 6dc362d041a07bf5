"""`efo record` as an operator uses it."""

import json
import os
import signal
import stat
import threading
import time

import pytest
import trio

from efo.kinesis.aws.client import open_kinesis
from efo.testing import FakeKinesisThread, FakeSettings
from efo.testing.faults import Refuse
from efo.testing.faults.script import When
from efo.testing.recording.file import Recording
from efo_service.cli import call
from efo_service.exit_codes import Exit
from tests.environment import use_fake


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as fake:
        fake.create_stream("orders", shards=1)
        fake.put("orders", "secret-key", b"secret-data")
        yield fake


@pytest.fixture(autouse=True)
def environment(kinesis, monkeypatch):
    use_fake(monkeypatch, kinesis)


def registered(kinesis):
    async def names():
        async with open_kinesis(
            "orders", region="us-east-1", endpoint_url=kinesis.url, ca_file=kinesis.ca_file
        ) as client:
            stream = await client.control_plane.describe_stream()
            found = await client.control_plane.list_consumers(stream.arn)
            return [consumer.name for consumer in found if consumer.status != "DELETING"]

    return trio.run(names)


def test_a_signal_ends_the_recording_and_the_output_has_no_data(tmp_path, capsys):
    path = tmp_path / "orders.jsonl"

    def stop_when_something_is_recorded():
        while not path.exists() or path.read_bytes().count(b'"data"') < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop_when_something_is_recorded)
    stopper.start()
    code = call(["record", "orders", "--output", str(path), "--from", "trim_horizon", "--json"])
    stopper.join()
    output = capsys.readouterr()
    assert code == Exit.OK, output.err
    result = json.loads(output.out)
    with Recording.open(path) as recording:
        [lines] = recording.calls.values()
        recorded = b"".join(line.data for line in lines if line.data is not None)
    assert result == {"file": str(path), "calls": 1, "bytes": len(recorded), "consumer": "efo-record"}
    assert b"secret-key" in recorded
    assert "secret" not in output.out + output.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("arguments", "stays"), [([], False), (["--consumer", "named"], True)])
def test_its_own_consumer_is_deregistered_at_the_end_and_one_that_is_named_stays(
    tmp_path, capsys, kinesis, arguments, stays
):
    name = arguments[-1] if arguments else "efo-record"
    path = tmp_path / "orders.jsonl"
    command = ["record", "orders", "--output", str(path), "--from", "trim_horizon", "--seconds", "0.5", *arguments]
    assert call(command) == Exit.OK
    assert (name in registered(kinesis)) is stays
    assert (f"efo consumers deregister {name} --force" in capsys.readouterr().err) is stays


def test_a_consumer_that_cannot_be_deregistered_is_named_with_the_reason(tmp_path, capsys, kinesis):
    refused = Refuse("AccessDeniedException", message="no kinesis:DeregisterStreamConsumer")
    kinesis.inject(refused, When(operation="DeregisterStreamConsumer"))
    command = ["record", "orders", "--output", str(tmp_path / "orders.jsonl"), "--seconds", "0.5"]
    assert call(command) == Exit.OK
    message = capsys.readouterr().err
    assert "efo consumers deregister efo-record --force" in message
    assert "kinesis:DeregisterStreamConsumer" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "/nowhere/x"], "--output /nowhere/x: No such file or directory: choose a new file"),
        (["--output", os.devnull], "choose a new file"),
        (["--output", "x", "--consumer", "efo"], "this is the consumer of the application"),
        (["--output", "x", "--from", "yesterday"], "--from yesterday"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, capsys):
    assert call(["record", "orders", *arguments]) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_a_signal_ends_the_wait_for_the_consumer(tmp_path, monkeypatch, capsys):
    async def never_active(_registration):
        os.kill(os.getpid(), signal.SIGINT)
        with trio.fail_after(10):
            await trio.sleep_forever()

    monkeypatch.setattr("efo.kinesis.registration.Registration.ensure", never_active)
    path = tmp_path / "orders.jsonl"
    assert call(["record", "orders", "--output", str(path)]) == Exit.OK
    assert "0 calls" in capsys.readouterr().out


def test_a_full_disk_is_one_error(monkeypatch, capsys):
    monkeypatch.setattr("efo_service.commands.record._create", lambda _path: open("/dev/full", "wb"))  # noqa: PTH123, SIM115
    assert call(["record", "orders", "--output", "orders.jsonl"]) == Exit.UNAVAILABLE
    assert "orders.jsonl cannot be written: No space left on device" in capsys.readouterr().err
