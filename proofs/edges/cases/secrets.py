"""Values with white space, and secrets that must not be shown: each process plants the canary in all of them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import trio

import efo
import efo.sync
from efo.testing import FakeKinesisThread, InMemoryStream, When
from efo.testing.faults import Refuse
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("secrets")

HOME: Final = Path.home()
GOOD: Final = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": CANARY, "AWS_REGION": "us-east-1"}


def _efo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "efo_service", *arguments],
        cwd=HOME,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    sys.stderr.write(done.stdout + done.stderr)  # the runner looks for the canary in it
    return done


def _config(text: str = "", **kinesis: str) -> None:
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {"stream": "orders", **kinesis}.items())
    (HOME / "efo.toml").write_text(f"[kinesis]\n{lines}[service]\nport = 0\n{text}")


def _named(done: subprocess.CompletedProcess[str], *names: str) -> Outcome:
    is_right = done.returncode == 78 and all(name in done.stderr for name in names)  # noqa: PLR2004 - configuration
    return Outcome(f"exit {done.returncode}: {done.stderr.strip()[:120]}", is_right)


def _refused(open_it: Callable[[], Any], name: str) -> Outcome:
    try:
        open_it()
    except efo.errors.ConfigurationError as error:
        return Outcome(str(error)[:120], name in str(error))
    return Outcome("it was opened", is_right=False)


def _variable(name: str, value: str) -> None:
    def run() -> Outcome:
        _config(region="us-east-1")
        return _named(_efo("run", "--config", "efo.toml", **(GOOD | {name: value})), name)

    title = f"efo run: {name} is {value.replace(CANARY, '...')!r}"
    cases.case("exit 78, naming the variable and not the value", name=title)(run)


for _name, _value in (
    ("AWS_SESSION_TOKEN", f"{CANARY}\n"),
    ("AWS_SECRET_ACCESS_KEY", f" {CANARY}"),
    ("AWS_ACCESS_KEY_ID", f"{CANARY}\r\n"),
    ("AWS_ENDPOINT_URL_STS", f"https://u:{CANARY}@h\t"),
    ("EFO_SERVICE__TOKEN", f"{CANARY}{CANARY}\n"),
):
    _variable(_name, _value)


@cases.case("refused, naming the variable and not the value")
def the_librarys_credentials_end_with_a_newline() -> Outcome:
    """Use a Secret that was made with echo."""
    os.environ.update(GOOD, AWS_SESSION_TOKEN=f"{CANARY}\n")

    async def handle(_batch: efo.Batch) -> None: ...

    run = lambda: trio.run(lambda: efo.consume("orders", handle, application="a", leases="memory:"))  # noqa: E731 - short
    return _refused(run, "AWS_SESSION_TOKEN")


@cases.case("refused, naming the variable and not the value")
def the_leases_in_dynamodb_meet_a_newline() -> Outcome:
    """Open the store alone."""
    os.environ.update(GOOD, AWS_SECRET_ACCESS_KEY=f"{CANARY}\n")
    from efo.leases.stores.dynamodb.store import DynamoDbLeaseStore  # noqa: PLC0415 - after the variables

    return _refused(lambda: trio.run(DynamoDbLeaseStore("leases").__aenter__), "AWS_SECRET_ACCESS_KEY")


@cases.case("refused, naming the variable and not the value")
def cloudwatch_meets_a_newline() -> Outcome:
    """Open the publisher alone."""
    os.environ.update(GOOD, AWS_SECRET_ACCESS_KEY=f"{CANARY}\n")

    async def run() -> None:
        async with efo.telemetry.open_cloudwatch("billing"):
            pass

    return _refused(lambda: trio.run(run), "AWS_SECRET_ACCESS_KEY")


@cases.case("refused, naming the variable and not the value")
def tokens_of_msk_meet_a_newline() -> Outcome:
    """Configure Kafka's client."""
    os.environ.update(GOOD, AWS_SESSION_TOKEN=f"{CANARY}\n")
    from efo_service.relay.kafka.client import client_config  # noqa: PLC0415 - after the variables
    from efo_service.relay.kafka.options import KafkaOptions  # noqa: PLC0415 - the same

    options = KafkaOptions(security_protocol="sasl_ssl", sasl_mechanism="AWS_MSK_IAM")
    return _refused(lambda: client_config(options, "us-east-1"), "AWS_SESSION_TOKEN")


@cases.case("refused, naming the variable and not the value")
def an_object_store_meets_a_newline() -> Outcome:
    """Open a log on S3."""
    os.environ.update(GOOD, AWS_SESSION_TOKEN=f"{CANARY}\n")
    from efo_service.object_store.remote import open_store  # noqa: PLC0415 - after the variables
    from efo_service.object_store.url import parse_url  # noqa: PLC0415 - the same

    return _refused(lambda: open_store(parse_url("s3://logs/efo")), "AWS_SESSION_TOKEN")


@cases.case("the type of what was acked, and nothing of it")
def a_record_is_acked_in_place_of_its_batch() -> Outcome:
    """Take the wrong variable."""
    stream, texts = InMemoryStream(), []
    stream.put(CANARY, f"card {CANARY}".encode())
    with efo.sync.open_consumer(stream.open(), application="a", leases=stream.leases) as consumer:
        for batch in consumer:
            for wrong in (batch.records[0], batch.records[0].data, batch.records[0].partition_key, batch.records):
                try:
                    consumer.ack(wrong)  # type: ignore[arg-type]
                except efo.errors.ConfigurationError as error:
                    texts.append(str(error))
            break
    sys.stderr.write("\n".join(texts))
    return Outcome("; ".join(texts)[:150], len(texts) == 4 and "Record" in texts[0])  # noqa: PLR2004 - what is acked


@cases.case("nothing of them in any line, at DEBUG")
def all_loggers_are_at_debug_while_a_stream_is_read_and_put() -> Outcome:
    """Read with a session token, in all modes, with leases in memory, and put."""
    for name in ("", "efo", "h2", "trio"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    os.environ.update(GOOD, AWS_SESSION_TOKEN=f"{CANARY}token")
    with FakeKinesisThread() as fake:
        fake.create_stream("orders")
        fake.put("orders", CANARY, CANARY.encode())
        fake.inject(Refuse("ThrottlingException"), When(times=1))

        async def run() -> int:
            got: list[bytes] = []
            where: dict[str, Any] = {"endpoint_url": fake.url, "ca_file": str(fake.ca_file)}
            for mode in ("fanout", "polling", "auto"):

                async def handle(batch: efo.Batch) -> None:
                    got.extend(record.data for record in batch)
                    await trio.lowlevel.checkpoint()
                    scope.cancel()

                settings = efo.ConsumerSettings(read_mode=mode)
                with trio.move_on_after(20) as scope:
                    await efo.consume("orders", handle, application=mode, leases="memory:", settings=settings, **where)
            async with efo.open_producer("orders", **where) as producer:
                await producer.put(CANARY.encode(), partition_key=CANARY)
            return len(got)

        got = trio.run(run)
    return Outcome(f"read {got} records in 3 modes", got == 3)  # noqa: PLR2004 - one in each


@cases.case("nothing of a URL's password in what is reported", seconds=150)
def servers_with_passwords_cannot_be_reached() -> Outcome:
    """Let the lease stores and the rows of other libraries be URLs with passwords."""
    os.environ.update(GOOD)
    codes = []
    for store, scheme in (("postgres", "postgresql"), ("redis", "redis")):
        _config(f'[leases]\nstore = "{store}"\n', endpoint_url="https://127.0.0.1:9")
        secret = {"EFO_LEASES__URL": f"{scheme}://me:{CANARY}@127.0.0.1:9/0"}
        codes.append(_efo("check-config", "--config", "efo.toml", **secret).returncode)
        codes.append(_efo("doctor", "--config", "efo.toml", "--timeout", "5", **secret).returncode)
    for scheme in ("postgresql", "redis", "mysql"):
        rows = {"EFO_MIGRATE_CHECKPOINTS": f"{scheme}://me:{CANARY}@127.0.0.1:9/x"}
        codes.append(_efo("migrate", "harlow", "--config", "efo.toml", "--table", "t", **rows).returncode)
    return Outcome(f"exit codes {codes}", all(code in {0, 64, 69, 78} for code in codes))


@cases.case("nothing of the password in what is reported")
def kafka_with_a_password_cannot_be_reached() -> Outcome:
    """Ask doctor."""
    os.environ.update(GOOD)
    kafka = 'bootstrap_servers = "127.0.0.1:9"\nsecurity_protocol = "sasl_plaintext"\n'
    sasl = 'sasl_mechanism = "PLAIN"\nsasl_username = "me"\n'
    _config(f'[relay]\nsink = "kafka"\n[relay.kafka]\n{kafka}{sasl}', endpoint_url="https://127.0.0.1:9")
    secret = {"EFO_RELAY__KAFKA__SASL_PASSWORD": CANARY}
    done = _efo("doctor", "--config", "efo.toml", "--timeout", "5", **secret)
    shown = _efo("check-config", "--config", "efo.toml", **secret)
    return Outcome(f"exit {done.returncode}, {shown.returncode}", done.returncode == 69 and shown.returncode == 0)  # noqa: PLR2004 - unavailable
