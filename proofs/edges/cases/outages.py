"""Outages as an operator sees them: when they begin, why, what to do, and how they end."""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import trio

import efo
from efo.errors import EfoError
from efo.protocol.remedies import REMEDIES
from efo.testing import ALWAYS, FakeKinesis, FakeKinesisThread, When
from efo.testing.faults import Fault, NoResponse, Refuse, Silence
from proofs.edges.consuming import STREAM, Reported, consume, in_virtual_time
from proofs.edges.service import Service, serving
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("outages")

BEGAN, CHANGED, ENDED = "an outage of Kinesis began", "goes on, for another reason", "ended after"
GIVEN_UP = "is no longer tried here, and has not ended"
_MINUTE: Final = 60.0


def during_faults(*faults: tuple[Fault, When], seconds: float = 300.0, **settings: Any) -> Reported:
    """Read a stream of four shards, with these faults, and return what was reported."""

    async def main() -> Reported:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=4)
            fake.put_many(STREAM, [(f"{CANARY}-{n}", CANARY.encode()) for n in range(20)])
            for fault, when in faults:
                fake.faults.add(fault, when)
            open_with = {"on_service_error": settings.pop("on_service_error", "stop")}
            consumed = await consume(fake, seconds, open_with=open_with, **settings)
        return consumed.reported

    return in_virtual_time(main)


def between(start: float, stop: float, operation: str = "SubscribeToShard") -> When:
    return When(operation=operation, start=start, stop=stop, times=ALWAYS)


def one_outage(reported: Reported, error_type: str) -> Outcome:
    """Return whether one outage was reported, with its cause and its remedy, and its end."""
    lines = reported.lines_with("outage of Kinesis")
    is_right = (
        len(lines) == len((BEGAN, ENDED))
        and BEGAN in lines[0]
        and f": {error_type}" in lines[0]
        and REMEDIES[error_type] in lines[0]
        and ENDED in lines[1]
    )
    return Outcome(" / ".join(lines), is_right=is_right)


@cases.case("two lines: an outage with the remedy for errors of the service itself, and its end; renewals fail first")
def the_service_fails_for_two_minutes() -> Outcome:
    reported = during_faults((Refuse("InternalFailureException", status=500), between(200, 420)), seconds=700)
    return one_outage(reported, "InternalFailureException")


@cases.case("two lines, with the remedy for throttling; what lasts less than 10 s belongs to pacing, and is none")
def throttled_for_two_minutes() -> Outcome:
    reported = during_faults((Refuse("LimitExceededException"), between(200, 420)), seconds=700)
    short = during_faults((Refuse("LimitExceededException"), between(0, 7)), seconds=100)
    found = one_outage(reported, "throttled")
    return Outcome(found.did, is_right=found.is_right and not short.lines_with("outage"))


@cases.case("three lines: no sign of life, then no response to calls, each with its remedy; and the end")
def silence_for_two_minutes() -> Outcome:
    reported = during_faults((Silence(), When(at=20, times=1)), (NoResponse(), between(20, 140)), seconds=400)
    lines = reported.lines_with("outage of Kinesis")
    is_right = [CHANGED in line for line in lines] == [False, True, False] and (
        REMEDIES["transport"] in lines[0] and REMEDIES["silence"] in lines[1] and ENDED in lines[2]
    )
    return Outcome(" / ".join(lines), is_right=is_right)


@cases.case("no outage: one line says that the shards are isolated, why, and what to do")
def the_key_is_disabled_from_the_start() -> Outcome:
    async def main() -> Reported:
        async with FakeKinesis() as fake:
            fake.create_stream(STREAM, shards=1)
            fake.encrypt(STREAM, "alias/orders")
            fake.fail_key(STREAM, "KMSDisabledException")
            consumed = await consume(fake, 50, open_with={"on_service_error": "isolate"})
        return consumed.reported

    reported = in_virtual_time(main)
    outages, lines = reported.lines_with("outage"), reported.lines_with("kms")
    is_right = not outages and bool(lines) and any("isolated" in line for line in lines)
    return Outcome(f"{len(outages)} lines of outages; {lines[:1]}", is_right=is_right)


@cases.case("the outage is given up, not ended, when the worker ends while it lasts")
def the_worker_ends_before_the_outage() -> Outcome:
    reported = during_faults((Refuse("InternalFailureException", status=500), between(200, 10_000)), seconds=500)
    lines = reported.lines_with("outage of Kinesis")
    is_right = len(lines) == len((BEGAN, GIVEN_UP)) and BEGAN in lines[0] and GIVEN_UP in lines[1]
    return Outcome(" / ".join(lines), is_right=is_right)


@cases.case("one more line, with the new cause and its own remedy; the end names the last cause")
def the_cause_changes() -> Outcome:
    reported = during_faults(
        (Refuse("InternalFailureException", status=500), between(200, 360)),
        (Refuse("LimitExceededException"), between(360, 460)),
        seconds=900,
    )
    lines = reported.lines_with("outage of Kinesis")
    is_right = (
        [CHANGED in line for line in lines] == [False, True, False]
        and "by InternalFailureException goes on" in lines[1]
        and REMEDIES["throttled"] in lines[1]
        and "by throttled ended" in lines[2]
    )
    return Outcome(" / ".join(lines), is_right=is_right)


@cases.case("a cause that was reported before is not reported again within ten minutes: three lines, not sixty")
def two_causes_alternate() -> Outcome:
    faults = [
        (
            Refuse("InternalFailureException", status=500) if number % 2 else Refuse("LimitExceededException"),
            between(*times),
        )
        for number, times in enumerate(pairwise(range(240, 840, 20)))
    ]
    reported = during_faults(*faults, seconds=1300)
    lines = reported.lines_with("outage of Kinesis")
    is_right = [CHANGED in line for line in lines] == [False, True, False]
    return Outcome(f"{len(lines)} lines", is_right=is_right)


def _restarted(cause: str, again: dict[str, Any] | None = None) -> list[str]:
    """Read from a fake on a port, and stop it. `again`: how another one starts there. Return what was reported.

    `cause`: the error type to wait for.
    """
    with ExitStack() as stack:
        with FakeKinesisThread() as fake:
            fake.create_stream(STREAM, 1)
            service = stack.enter_context(serving(fake))
            fake.put(STREAM, CANARY, b"connected")
            service.until(lambda: list(Path("log").rglob("*.arrow")))
        if again is not None:
            port = int(fake.url.rpartition(":")[2])
            stack.enter_context(FakeKinesisThread(port=port, **again)).create_stream(STREAM, 1)
        service.until(lambda: cause in [line["error_type"] for line in _outage_lines(service)])
        problems = service.problems()
        reported = [f"{line['event']}: {line['error_type']}: {line.get('remedy')}" for line in _outage_lines(service)]
    return [*reported, *(f"/status: {problem}" for problem in problems if "Kinesis has failed" in problem)]


def _outage_lines(service: Service) -> list[dict[str, Any]]:
    return [line for line in list(service.lines) if str(line.get("event")).startswith("kinesis_outage")]


@cases.case("an outage with the remedy for connections, in the log and in /status", seconds=90)
def nothing_listens_any_more() -> Outcome:
    reported = _restarted("connect")
    is_right = any(line.startswith("/status") and REMEDIES["connect"] in line for line in reported) and any(
        line.startswith("kinesis_outage") and REMEDIES["connect"] in line for line in reported
    )
    return Outcome(" / ".join(reported), is_right=is_right)


@cases.case("the outage changes its cause: a certificate that is not trusted, with the remedy for TLS", seconds=90)
def another_certificate_answers() -> Outcome:
    reported = _restarted("tls", {"tls": True})
    is_right = any(line.startswith("kinesis_outage_changed: tls") and REMEDIES["tls"] in line for line in reported)
    return Outcome(" / ".join(reported), is_right=is_right)


@cases.case("refused with the reason: the name has no address")
def the_name_has_no_address() -> Outcome:
    async def main() -> Outcome:
        try:
            async with efo.open_consumer(
                STREAM, application="edges", region="us-east-1", endpoint_url="https://kinesis.efo.invalid"
            ):
                return Outcome("opened", is_right=False)
        except EfoError as error:
            is_right = error.error_type == "dns" and "kinesis.efo.invalid" in str(error)
            return Outcome(f"{error.error_type}: {error}; {REMEDIES.get(error.error_type)}", is_right=is_right)

    os.environ |= {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": f"{CANARY}secret"}
    return trio.run(main)
