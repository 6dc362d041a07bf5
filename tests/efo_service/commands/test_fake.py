"""`efo fake` as a process: its output, its end, and clients that use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import trio

from tests.paths import ROOT

COMMAND = [sys.executable, "-m", "efo_service.cli", "fake"]
pytestmark = pytest.mark.e2e


class Served:
    def __init__(self, process, output):
        self.process, self.output = process, output


@pytest.fixture
async def efo_fake(nursery):
    """Start `efo fake --port 0 --json` with these arguments; return the process and its JSON output."""
    started = []

    async def start(*arguments):
        process = await trio.lowlevel.open_process(
            [*COMMAND, "--port", "0", "--json", *arguments], stdout=subprocess.PIPE, cwd=ROOT
        )
        started.append(process)
        line = b""
        with trio.fail_after(60):
            while not line.endswith(b"\n"):
                data = await process.stdout.receive_some(1000)
                assert data, "the process ended"
                line += data
        return Served(process, json.loads(line))

    yield start
    for process in started:
        process.kill()
        await process.stdout.aclose()
        await process.wait()


CLIENT = """
import sys, trio, efo

async def main():
    count = int(sys.argv[1])
    async with efo.open_kinesis("orders") as kinesis:
        async with efo.open_consumer(kinesis, application="reader", leases="memory:") as consumer:
            got = []
            async def read(shard):
                async for batch in shard:
                    got.extend(record.data.decode() for record in batch.records)
                    shard.ack(batch)
                    if len(got) == count:
                        consumer.drain()
            await consumer.run(read)
            print(*sorted(got))

trio.run(main)
"""

PUT = """
import botocore.session, sys
client = botocore.session.Session().create_client("kinesis")
for n in range(int(sys.argv[1])):
    client.put_record(StreamName="orders", Data=b"%d" % n, PartitionKey=f"k{n}")
"""


async def run(served, program, *arguments):
    environment = {"PATH": os.environ["PATH"], **served.output["environment"]}
    with trio.fail_after(120):
        done = await trio.run_process(
            [sys.executable, "-c", program, *arguments], env=environment, capture_stdout=True, cwd=ROOT
        )
    return done.stdout.decode().split()


async def stop(served, number=signal.SIGTERM):
    served.process.send_signal(number)
    with trio.fail_after(30):
        assert await served.process.wait() == 0


async def test_clients_read_all_records_despite_faults_and_again_from_the_recording(efo_fake, tmp_path):
    script, recording = tmp_path / "faults.toml", tmp_path / "recording.jsonl"
    script.write_text('[[fault]]\nkind = "reset"\nwhen = { nth = 1 }')
    served = await efo_fake("--streams", "orders:2,clicks", "--faults", str(script), "--record", str(recording))
    assert served.output["streams"] == ["orders", "clicks"]
    await run(served, PUT, "30")
    expected = sorted(str(n) for n in range(30))
    assert await run(served, CLIENT, "30") == expected
    await stop(served)
    assert b'"kind":"reset"' in recording.read_bytes()
    for pace in (["--fast"], ["--speed", "1000"]):
        again = await efo_fake("--replay", str(recording), *pace)
        assert again.output["streams"] == ["orders", "clicks"]
        assert await run(again, CLIENT, "30") == expected
        await stop(again, signal.SIGINT)


PUT_TOO_MUCH = """
import botocore.session
client = botocore.session.Session().create_client("kinesis")
entry = {"Data": b"x" * 600_000, "PartitionKey": "k"}
print(client.put_records(StreamName="orders", Records=[entry] * 3)["FailedRecordCount"])
"""


@pytest.mark.parametrize(("arguments", "failed"), [([], "0"), (["--throttle-writes"], "2")])
async def test_throttle_writes_limits_writers(efo_fake, arguments, failed):
    served = await efo_fake("--streams", "orders", *arguments)
    assert await run(served, PUT_TOO_MUCH) == [failed]
    await stop(served)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--streams", "orders:four"], 64, "NAME:SHARDS"),
        (["--streams", f"orders:{'9' * 6000}"], 64, "NAME:SHARDS"),
        (["--streams", "or/ders:4"], 64, "--streams"),
        (["--streams", "orders:0"], 64, "--streams"),
        (["--port", "99999"], 64, "65535"),
        (["--port", "-1"], 64, "--port"),
        (["--record", "a", "--replay", "b"], 64, "exclude each other"),
        (["--speed", "2"], 64, "--speed belongs to --replay"),
        (["--replay", "a", "--speed", "2", "--fast"], 64, "--speed belongs to --replay, without --fast"),
        (["--replay", "a", "--speed", "0"], 64, "--speed"),
        (["--faults", "missing.toml"], 78, "missing.toml"),
        (["--replay", "missing.jsonl"], 78, "missing.jsonl"),
    ],
)
def test_wrong_arguments_are_refused(arguments, code, message):
    done = subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_port_in_use_is_unavailable(efo_fake):
    served = await efo_fake("--no-tls")
    port = served.output["url"].rpartition(":")[2]
    assert served.output["ca_file"] is None
    with trio.fail_after(60):
        done = await trio.run_process([*COMMAND, "--port", port], capture_stderr=True, check=False, cwd=ROOT)
    assert done.returncode == 69
    assert f"port {port} on 127.0.0.1" in done.stderr.decode()


def test_without_json_the_fake_prints_export_lines_for_a_shell(tmp_path):
    process = subprocess.Popen([*COMMAND, "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        shown = ""
        while "Press Ctrl-C to stop" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        assert process.wait(timeout=30) == 0
    exports = [line for line in shown.splitlines() if line.startswith("export ")]
    script = textwrap.dedent("\n".join([*exports, 'test -n "$AWS_ENDPOINT_URL_KINESIS" && test -n "$AWS_CA_BUNDLE"']))
    subprocess.run(["/bin/sh", "-ec", script], check=True, timeout=30, env={})
