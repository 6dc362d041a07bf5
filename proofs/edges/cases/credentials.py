"""Credentials: what is reported at the start, and that trouble afterwards passes."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

import efo
from efo.testing import FakeKinesisThread, FakeSettings, When
from efo.testing.faults import Refuse, TcpCut
from efo.testing.sigv4 import Credential
from proofs.local_servers.credential_services import (
    OUTAGES,
    PROVIDERS,
    CredentialServices,
    log_in,
    printed,
    serve_credentials,
)
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("credentials")

HOME: Final = Path.home()
SOON: Final = 3.0
"""Seconds within which reading goes on when the cause is over."""


Change = Callable[[CredentialServices], object]


def set_up(provider: str, services: CredentialServices) -> None:
    """Set up a provider of the chain in this process."""
    for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"]:
        del os.environ[name]
    os.environ["AWS_REGION"] = "us-east-1"
    os.environ.update(PROVIDERS[provider](HOME, services))


def reads_through(break_it: Change, mend: Change, provider: str) -> Outcome:
    """Read while credentials of a few seconds cannot be refreshed for a while; return when reading went on."""
    services = CredentialServices(prefix=CANARY, lifetime=6.0)
    log = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))
    with serve_credentials(services), FakeKinesisThread() as fake:
        set_up(provider, services)
        fake.create_stream("orders")
        return trio.run(_reading, fake, log, partial(break_it, services), partial(mend, services))


async def _reading(fake: FakeKinesisThread, log: io.StringIO, break_it: Any, mend: Any, down: float = 9.0) -> Outcome:
    got: list[float] = []
    changed = trio.lowlevel.ParkingLot()

    async def bill(_record: efo.Record, _batch: efo.Batch) -> None:
        await trio.lowlevel.checkpoint()
        got.append(trio.current_time())
        changed.unpark_all()

    async def reached(count: int) -> None:
        while len(got) < count:
            await changed.park()

    async def put(keys: str) -> None:
        for key in keys:
            await trio.to_thread.run_sync(fake.put, "orders", key, CANARY.encode())

    stream = efo.open_kinesis("orders", endpoint_url=fake.url, ca_file=str(fake.ca_file))
    async with stream as kinesis, trio.open_nursery() as nursery:
        run = partial(efo.consume, kinesis, record_handler=bill, application="billing", leases="memory:")
        consumer = await nursery.start(run)
        await put("abcd")
        await reached(4)
        await trio.to_thread.run_sync(break_it)
        await trio.sleep(down - 5)  # what was fetched before expires meanwhile
        await trio.to_thread.run_sync(fake.inject, TcpCut(), When(nth=1))
        await put("efgh")
        await trio.sleep(5)
        during = len(got)
        await trio.to_thread.run_sync(mend)
        mended = trio.current_time()
        with trio.move_on_after(20):
            await reached(8)
        consumer.drain()
    lost = 8 - len(got)
    late = 99.0 if lost else max(got[-1] - mended, 0.0)
    reported = "credential" in log.getvalue().lower()
    did = f"lost {lost}, {during} read during the outage, all {late:.1f} s after it, reported: {bool(reported)}"
    is_seen = reported or during == 8  # noqa: PLR2004 - botocore extends credentials of IMDS by itself
    return Outcome(did, not lost and late <= SOON and is_seen, {"records_lost_silently": lost})


def _outage(name: str, provider: str) -> None:
    def run() -> Outcome:
        def break_it(services: CredentialServices) -> None:
            services.outage = OUTAGES[name]

        def mend(services: CredentialServices) -> None:
            services.outage = None

        return reads_through(break_it, mend, provider)

    title = f"{provider}: {name} for some seconds"
    cases.case("reading goes on within 3 s when it is over", name=title, seconds=90)(run)


for _provider, _name in (
    ("assume-role-with-web-identity", "a proxy's 503 in plain text"),
    ("assume-role-with-web-identity", "a page in HTML with 200"),
    ("assume-role-with-web-identity", "access denied"),
    ("container-role", "a proxy's 503 in plain text"),
    ("container-role", "an empty object"),
    ("iam-role", "a proxy's 503 in plain text"),
    ("sso", "unauthorized"),
    ("assume-role", "nothing"),
):
    _outage(_name, _provider)


@cases.case("reading goes on within 3 s when the file is there again", seconds=90)
def the_token_file_is_gone_for_a_while() -> Outcome:
    """As when a projected volume is replaced."""
    token = HOME / "token"
    return reads_through(lambda _: token.unlink(), lambda _: token.write_text(CANARY), "assume-role-with-web-identity")


@cases.case("reading goes on within 3 s when the agent is there again", seconds=90)
def the_pod_identity_agent_restarts() -> Outcome:
    """Its port is closed meanwhile."""
    services, log = CredentialServices(prefix=CANARY, lifetime=6.0), io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))
    with FakeKinesisThread() as fake:
        fake.create_stream("orders")
        running = serve_credentials(services)
        with running:
            set_up("container-role", services)
            port = int(services.url.rpartition(":")[2])
        again: list[Any] = [serve_credentials(services, port)]
        again[0].__enter__()

        def mend() -> None:
            again.append(serve_credentials(services, port))
            again[-1].__enter__()

        try:
            return trio.run(_reading, fake, log, lambda: again[0].__exit__(None, None, None), mend)
        finally:
            again[-1].__exit__(None, None, None)


@cases.case("reading goes on within 3 s when it prints credentials again", seconds=90)
def the_command_prints_text_for_a_while() -> Outcome:
    """As a tool whose own session has ended."""
    return reads_through(
        lambda _: (HOME / "printed").write_text(f"Session expired: {CANARY}"),
        lambda services: printed(HOME, services),
        "custom-process",
    )


@cases.case("reading goes on within 3 s when somebody has logged in again", seconds=90)
def the_session_of_sso_expires_and_somebody_logs_in() -> Outcome:
    """Write the session's token again."""
    return reads_through(lambda _: log_in(HOME, CANARY, -60.0), lambda _: log_in(HOME, CANARY, 3600.0), "sso")


def _refused_by_kinesis(mend: Callable[[FakeKinesisThread, dict[str, Credential]], object]) -> Outcome:
    known = {"AKFILE": Credential(f"{CANARY}file")}
    log = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))
    services = CredentialServices(prefix=CANARY)
    with FakeKinesisThread(settings=FakeSettings(credentials=known)) as fake:
        set_up("shared-credentials-file", services)
        fake.create_stream("orders")

        def break_it() -> None:
            known["AKFILE"] = Credential(f"{CANARY}file", expires_at=0.0)

        return trio.run(_reading, fake, log, break_it, partial(mend, fake, known))


@cases.case("reading goes on within 3 s after the service accepts them again", seconds=90)
def kinesis_says_for_a_while_that_the_credentials_have_expired() -> Outcome:
    """As after a session was revoked by mistake."""

    def mend(_fake: FakeKinesisThread, known: dict[str, Credential]) -> None:
        known["AKFILE"] = Credential(f"{CANARY}file")

    return _refused_by_kinesis(mend)


@cases.case("the new key is read from the file, without a restart", seconds=90)
def a_key_is_rotated_in_the_credentials_file() -> Outcome:
    """Delete the old one first."""

    def mend(_fake: FakeKinesisThread, known: dict[str, Credential]) -> None:
        known["AKNEW"] = Credential(f"{CANARY}new")
        text = f"[default]\naws_access_key_id = AKNEW\naws_secret_access_key = {CANARY}new\n"
        (HOME / ".aws" / "credentials").write_text(text)

    return _refused_by_kinesis(mend)


# --- the start ------------------------------------------------------------------------------------------------------


@contextmanager
def _service(**kinesis: str) -> Any:
    """Write the configuration of a service beside a fake; yield a function that runs `efo run`."""
    with FakeKinesisThread() as fake:
        fake.create_stream("orders")
        settings = {"stream": "orders", "endpoint_url": fake.url, "ca_file": str(fake.ca_file), **kinesis}
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        (HOME / "efo.toml").write_text(f'[kinesis]\n{lines}[service]\nport = 0\n[relay]\ndirectory = "log"\n')
        yield partial(_run, "run", "--config", "efo.toml")


def _run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "efo_service", *arguments],
        cwd=HOME,
        capture_output=True,
        text=True,
        input=stdin,
        timeout=60,
        check=False,
    )


def _tells(done: subprocess.CompletedProcess[str], status: int, *words: str) -> Outcome:
    """Return whether a command ended with a status, one line on stderr with these words, and no canary."""
    sys.stderr.write(done.stdout + done.stderr)  # the runner looks for the canary in it
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    missing = [word for word in words if word not in done.stderr]
    did = f"exit {done.returncode}, {len(lines)} lines: {' '.join(lines)[:160]}"
    is_right = done.returncode == status and len(lines) == 1 and not missing and "defect" not in done.stderr
    return Outcome(did, is_right)


@cases.case("exit 78, one line: the provider, the file, what to do")
def at_the_start_the_token_file_is_missing() -> Outcome:
    """Leave the volume out."""
    with serve_credentials(CredentialServices(prefix=CANARY)) as services, _service() as run:
        set_up("assume-role-with-web-identity", services)
        (HOME / "token").unlink()
        return _tells(run(), 78, "IRSA", str(HOME / "token"), "AWS_WEB_IDENTITY_TOKEN_FILE")


@cases.case("exit 78, one line: that the command is missing")
def at_the_start_the_command_is_missing() -> Outcome:
    """Name a path that does not exist."""
    (HOME / ".aws").mkdir()
    (HOME / ".aws" / "config").write_text(f"[default]\ncredential_process = /nowhere/{CANARY[:4]} --token x\n")
    with _service(region="us-east-1") as run:
        return _tells(run(), 78, "credential_process", "No such file")


@cases.case("exit 78, one line, without what it printed")
def at_the_start_the_command_prints_text() -> Outcome:
    """Let it ask for a login."""
    with serve_credentials(CredentialServices(prefix=CANARY)) as services, _service() as run:
        set_up("custom-process", services)
        (HOME / "printed").write_text(CANARY)
        return _tells(run(), 78, "credential_process", "no credentials")


@cases.case("exit 78, one line with the login command")
def at_the_start_the_session_of_sso_has_expired() -> Outcome:
    """Let the token be old."""
    with serve_credentials(CredentialServices(prefix=CANARY)) as services, _service() as run:
        set_up("sso", services)
        log_in(HOME, CANARY, -60.0)
        return _tells(run(), 78, "aws sso login --profile corp")


@cases.case("exit 78, one line; nothing waits for stdin")
def a_profile_needs_a_code_of_a_device() -> Outcome:
    """Botocore would prompt."""
    with serve_credentials(CredentialServices(prefix=CANARY)) as services, _service() as run:
        set_up("assume-role", services)
        config = HOME / ".aws" / "config"
        config.write_text(f"{config.read_text()}mfa_serial = arn:aws:iam::123456789012:mfa/me\n")
        return _tells(run(stdin="123456\n"), 78, "mfa_serial")


@cases.case("exit 69, one line that names STS and not Kinesis")
def at_the_start_sts_cannot_be_reached() -> Outcome:
    """Nothing listens there."""
    with serve_credentials(CredentialServices(prefix=CANARY)) as gone:
        variables = PROVIDERS["assume-role-with-web-identity"](HOME, gone)
    os.environ.update(AWS_REGION="us-east-1", **variables)
    with _service() as run:
        done = run()
        outcome = _tells(done, 69, "AWS STS at 127.0.0.1 cannot be reached")
        return Outcome(outcome.did, outcome.is_right and "Kinesis" not in done.stderr)


@cases.case("exit 78, one line")
def at_the_start_there_are_no_credentials() -> Outcome:
    """Nothing at all is set up."""
    with _service(region="us-east-1") as run:
        return _tells(run(), 78, "AWS_ACCESS_KEY_ID", "AWS_PROFILE")


@cases.case("reading goes on; the shard is not stopped", seconds=90)
def one_access_denied_of_subscribe_to_shard() -> Outcome:
    """IAM applies a change some seconds later."""
    os.environ.update(AWS_ACCESS_KEY_ID="AK", AWS_SECRET_ACCESS_KEY=CANARY, AWS_REGION="us-east-1")
    log = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(log))
    with FakeKinesisThread() as fake:
        fake.create_stream("orders")

        def deny() -> None:
            log.write("credentials")  # nothing is to be reported of them
            fake.inject(Refuse("AccessDeniedException"), When(times=2))

        return trio.run(_reading, fake, log, deny, lambda: None, 5.0)
