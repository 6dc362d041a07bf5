"""Every secret, payload and key of a service has a canary in it, and no output may show it, at any level of the log."""

from __future__ import annotations

import json
import os
import signal
import sys

import httpx2
import pytest
import trio

from efo.testing.faults.kinds import BitFlip, ErrorMessage, Refuse, StreamException, TcpCut
from efo.testing.faults.script import ALWAYS, When
from efo_service.exit_codes import Exit
from tests.e2e.running import relayed, running

pytestmark = pytest.mark.e2e

CANARY = "CaNaRy7h3"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}secret",
    "AWS_SESSION_TOKEN": f"{CANARY}token",
    "EFO_SERVICE__TOKEN": f"{CANARY}-service-token",
    "EFO_RELAY__KAFKA__SASL_PASSWORD": f"{CANARY}sasl",
    "EFO_RELAY__KAFKA__KEY_PASSWORD": f"{CANARY}key",
    "EFO_PIPELINE__SPARK_OPTIONS": json.dumps({"spark.hadoop.fs.s3a.secret.key": f"{CANARY}s3a"}),
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://me:{CANARY}@127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {CANARY}",
    "OTEL_METRIC_EXPORT_INTERVAL": "500",
    "HTTP_PROXY": f"http://me:{CANARY}@127.0.0.1:9",
    "NO_PROXY": "127.0.0.1",
    "EFO_SERVICE__LOG_LEVEL": "debug",
}
REFUSALS = (
    Refuse("ValidationException", message=f"Value '{CANARY}' at 'partitionKey' failed to satisfy constraint"),
    Refuse(
        "InvalidSignatureException", message=f"The Canonical String should have been 'x-amz-security-token:{CANARY}'"
    ),
)


async def test_no_output_of_a_service_shows_a_secret_a_payload_or_a_key(fake, files):
    shown = []
    fake.faults.add(REFUSALS[1], When(nth=2))
    for fault in (TcpCut(), BitFlip(), StreamException("InternalFailureException"), ErrorMessage("InternalFailure")):
        fake.faults.add(fault, When(nth=2))
    fake.put_many("orders", [(f"{CANARY}-{number}", f"{CANARY}{number}".encode()) for number in range(100)])
    async with running(files, **SECRETS) as efo:
        url = (await efo.logged("started"))["url"]
        await efo.until(lambda: relayed(files) >= 100)
        async with httpx2.AsyncClient(base_url=url) as client:
            client.headers["authorization"] = f"Bearer {SECRETS['EFO_SERVICE__TOKEN']}"
            for path in ("/", "/status", "/metrics", "/livez", "/readyz"):
                shown.append((await client.get(path)).text)  # noqa: PERF401 - one after the other
        fake.put_many("orders", [(f"{CANARY}-{number}", f"{CANARY}{number}".encode()) for number in range(50)])
        await efo.until(lambda: relayed(files) >= 150)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
        shown += [efo.stderr, *map(json.dumps, efo.lines)]
    assert len(shown) > 50
    assert [text for text in shown if CANARY in text] == []


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.code)
async def test_a_service_that_is_refused_shows_nothing_of_what_the_refusal_quotes(refusal, fake, files):
    fake.faults.add(refusal, When(operation="*", times=ALWAYS))
    async with running(files, **SECRETS) as efo:
        assert await efo.ended() == Exit.UNAVAILABLE
        await trio.sleep(0.1)  # until its pipes are read
    assert refusal.code in efo.stderr
    assert CANARY not in efo.stderr + json.dumps(efo.lines)


@pytest.mark.parametrize("command", ["check-config", "doctor", "leases list", "shards"])
async def test_no_output_of_a_command_shows_a_secret(command, fake, files):
    environment = {"PATH": os.environ["PATH"], "HOME": str(files.directory), "AWS_ACCESS_KEY_ID": "AK", **SECRETS}
    process = await trio.run_process(
        [sys.executable, "-m", "efo_service.cli", *command.split(), "--config", str(files.config)],
        cwd=files.directory,
        env=environment,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert CANARY not in process.stdout.decode() + process.stderr.decode()
    assert process.returncode in {Exit.OK, Exit.UNAVAILABLE, Exit.USAGE}  # there is no lease store yet
