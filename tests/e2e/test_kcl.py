"""`efo kcl`: a properties file of KCL's daemon, and a program that speaks the multi-language protocol."""

from __future__ import annotations

import base64
import json
import signal
import sys

import httpx2
import pytest

from efo_service.exit_codes import Exit
from tests.e2e.running import running

pytestmark = pytest.mark.e2e

PROGRAM = """
import json, os, sys
out = open(sys.argv[1] + "/" + str(os.getpid()), "w", buffering=1)
print("a line of a library")
for line in sys.stdin:
    out.write(line)
    message = json.loads(line)
    if message["action"] in ("processRecords", "shardEnded"):
        print(json.dumps({"action": "checkpoint", "sequenceNumber": None}), flush=True)
        answer = sys.stdin.readline()
        out.write(answer)
    if any(record["data"] == "ZGll" for record in message.get("records", ())):  # "die"
        sys.exit("it died")
    print(json.dumps({"action": "status", "responseFor": message["action"]}), flush=True)
print("bye", file=sys.stderr)
"""


@pytest.fixture
def properties(files):
    """Return the arguments of the command for this program."""
    (files.directory / "program.py").write_text(PROGRAM)
    (files.directory / "out").mkdir()
    path = files.directory / "app.properties"
    path.write_text(f"""
        executableName = {sys.executable} {files.directory}/program.py {files.directory}/out
        streamName = orders
        applicationName = billing
        AwsCredentialsProvider = DefaultCredentialsProvider
        initialPositionInStream = TRIM_HORIZON
        regionName = us-east-1
        metricsLevel = NONE
        workerId = w-1
    """)
    return "kcl", "--properties-file", str(path), "--log-configuration", str(logback(files.directory))


def logback(directory):
    path = directory / "logback.xml"
    path.write_text('<configuration><root level="DEBUG"><appender-ref ref="x"/></root></configuration>')
    return path


def environment(files):
    config = dict(line.split(" = ") for line in files.config.read_text().split("\n            ") if " = " in line)
    return {
        "EFO_KINESIS__ENDPOINT_URL": json.loads(config["endpoint_url"]),
        "EFO_KINESIS__CA_FILE": json.loads(config["ca_file"]),
        "EFO_LEASES__STORE": "sqlite",
        "EFO_LEASES__PATH": str(files.directory / "leases.sqlite"),
        "EFO_SERVICE__PORT": "0",
    }


def messages(files):
    """Return the messages of all children."""
    return [
        json.loads(line)
        for path in (files.directory / "out").iterdir()
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def data(files):
    return sorted(
        base64.b64decode(record["data"]) for message in messages(files) for record in message.get("records", ())
    )


async def test_a_properties_file_runs_until_sigterm_through_a_split(fake, files, properties):
    for number in range(100):
        fake.put("orders", f"key-{number}", b"%03d" % number)
    async with running(files, command=properties, **environment(files)) as efo:
        url = (await efo.logged("started"))["url"]
        await efo.until(lambda: len(data(files)) == 100)
        fake.split("orders", next(iter(fake.open_shards("orders"))))
        fake.put("orders", "key-1", b"100")
        await efo.until(lambda: len(data(files)) == 101)
        async with httpx2.AsyncClient(base_url=url) as client:
            metrics = (await client.get("/metrics")).text
            status = (await client.get("/status")).json()
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert data(files) == [b"%03d" % number for number in range(101)]
    assert status["stream"] == "orders"
    assert 'efo_child_count{messaging_consumer_group_name="billing"' in metrics
    assert "efo_child_memory_usage_bytes" in metrics
    actions = [message["action"] for message in messages(files)]
    assert actions.count("shardEnded") == 1
    assert actions.count("shutdownRequested") == actions.count("leaseLost") == 3
    assert "[shardId-000000000000] a line of a library\n" in efo.stderr
    assert efo.stderr.count("] bye\n") == 4


async def test_a_child_that_dies_ends_the_worker_and_the_others_finish(fake, files, properties):
    for number in range(10):
        fake.put("orders", f"key-{number}", b"%03d" % number)
    async with running(files, command=properties, **environment(files)) as efo:
        await efo.until(lambda: len(data(files)) == 10)
        fake.put("orders", "key-1", b"die")
        assert await efo.ended() == Exit.UNAVAILABLE
    failed = await efo.logged("failed")
    assert failed["error_type"] == "child_process"
    assert "ended with exit status 1" in failed["message"]
    assert [message["action"] for message in messages(files)].count("shutdownRequested") == 1
    assert "] it died\n" in efo.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("kcl",), Exit.USAGE, "needs a properties file"),
        (("kcl", "missing.properties"), Exit.CONFIGURATION, "missing.properties: cannot read the file"),
    ],
)
async def test_what_is_wrong_is_reported(files, arguments, code, message):
    async with running(files, command=arguments) as efo:
        assert await efo.ended() == code
    assert message in " ".join(efo.stderr.split())
