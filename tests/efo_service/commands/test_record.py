"""`efo record` as an operator uses it."""

import json
import os
import signal
import stat
import threading
import time

import pytest
import trio

from efo.testing import FakeKinesisThread
from efo.testing.recording.file import Recording
from efo_service.cli import call
from efo_service.exit_codes import Exit
from tests.environment import use_fake


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread() as fake:
        fake.create_stream("orders", shards=1)
        fake.put("orders", "secret-key", b"secret-data")
        yield fake


@pytest.fixture(autouse=True)
def environment(kinesis, monkeypatch):
    use_fake(monkeypatch, kinesis)


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
