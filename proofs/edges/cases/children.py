"""Child processes of `efo kcl` that die, hang, answer nonsense, or close what they were given."""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

import efo
from efo.testing import InMemoryStream
from efo_service.multilang.child import open_child
from efo_service.multilang.reader import ChildReader, ChildSettings
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("children")

RECORDS: Final = 20
_PROGRAM: Final = """
import json, os, signal, sys, threading, time
out = open(sys.argv[1], "a", buffering=1)
def write(**message):
    sys.stdout.write("\\n" + json.dumps(message) + "\\n")
    sys.stdout.flush()
def checkpoint(sequence=None):
    write(action="checkpoint", sequenceNumber=sequence)
    return json.loads(sys.stdin.readline())["error"]
def done(message):
    write(action="status", responseFor=message["action"])
def good(message):
    for record in message.get("records", ()):
        out.write(record["data"] + "\\n")
    if message["action"] in ("processRecords", "shardEnded", "shutdownRequested"):
        assert checkpoint() is None
    done(message)
def bad(message):
    {bad}
for number, line in enumerate(sys.stdin):
    message = json.loads(line)
    bad(message) if {when} else good(message)
    {after}
"""
_RECORDS: Final = 'message["action"] == "processRecords"'


def _program(bad: str = "good(message)", when: str = _RECORDS, after: str = "pass") -> str:
    return _PROGRAM.format(bad=bad, when=when, after=after)


async def _read(stream: InMemoryStream, program: str, file: Path, until: Callable[[ChildReader], bool]) -> ChildReader:
    """Read with child processes until something is true; return their reader."""
    command = (sys.executable, "-c", program, str(file))
    async with (
        stream.open() as kinesis,
        efo.open_consumer(kinesis, application="app", leases=stream.leases, observer=stream.events.append) as consumer,
        trio.open_nursery() as nursery,
    ):
        opening = partial(open_child, output=lambda _lines: None)  # what it prints is its own
        reader = ChildReader(ChildSettings(command, timeout=3.0), consumer.drain, opening)
        nursery.start_soon(consumer.run, reader)
        while not until(reader):  # noqa: ASYNC110 - another process writes the file
            await trio.sleep(0.05)
        consumer.drain()
    return reader


def _stream() -> tuple[InMemoryStream, list[bytes]]:
    stream = InMemoryStream(batch_records=5)
    data = [f"{CANARY}{number}".encode() for number in range(RECORDS)]
    stream.put(f"{CANARY}key", *data)
    return stream, data


def _given(file: Path) -> list[bytes]:
    return [base64.b64decode(line) for line in file.read_text().splitlines()] if file.exists() else []


async def _fails(program: str, reported: str) -> Outcome:
    """Let a child fail, then read with one that works: every record must come to it that was not checkpointed."""
    stream, data = _stream()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "given")
        failed = await _read(stream, program, file, lambda reader: reader.failure is not None)
        await _read(stream, _program(), file, lambda _: set(_given(file)) == set(data))
        lost = len(set(data) - set(_given(file)))
    text = str(failed.failure)
    return Outcome(text[:120], reported in text and not lost, {"records_lost_silently": lost})


async def _goes_on(program: str) -> Outcome:
    """Let a child do something harmless: all records must come, once and in order, and no failure be reported."""
    stream, data = _stream()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "given")
        reader = await _read(stream, program, file, lambda _: len(stream.processed()) == len(data))
        given = _given(file)
    right = reader.failure is None and given == data
    return Outcome(f"{len(given)} records were given", right, {"records_lost_silently": len(set(data) - set(given))})


def _failing(name: str, reported: str, bad: str, **parts: str) -> None:
    cases.case("the worker ends, and what was not checkpointed is given again", name=name)(
        _bound(_fails, _program(bad, **parts), reported)
    )


def _harmless(name: str, bad: str, **parts: str) -> None:
    cases.case("it goes on: each record once, in order", name=name)(_bound(_goes_on, _program(bad, **parts)))


def _bound(function: Callable[..., Awaitable[Outcome]], *arguments: object) -> Callable[[], Awaitable[Outcome]]:
    """Return an async function without parameters."""

    async def run() -> Outcome:
        return await function(*arguments)

    return run


SECOND: Final = f"{_RECORDS} and number > 1"
_failing("a child exits while it processes", "ended with exit status 3", "sys.exit(3)", when=SECOND)
_failing("a child exits in its first message", "ended with exit status 1", "sys.exit(1)", when="True")
_failing("a child is killed, as for lack of memory", "ended by SIGKILL", "os.kill(os.getpid(), 9)", when=SECOND)
_failing("a child exits while it is idle", "ended with exit status 0", "good(message); sys.exit()", when="number == 4")
_failing(
    "a child exits, and what it started keeps its pipes",
    "ended with exit status 3",
    "os.fork() or (os.setsid(), signal.alarm(20), time.sleep(30)); os._exit(3)",
    when=SECOND,
)
_failing("a child stops itself", "did not answer", "os.kill(os.getpid(), signal.SIGSTOP)", when=SECOND)
_failing("a child hangs", "did not answer processRecords within", "time.sleep(600)", when=SECOND)
_failing("a child ignores its end", "did not answer", "signal.signal(15, signal.SIG_IGN); time.sleep(600)", when=SECOND)
_failing("a child closes its stdin", "closed its stdin", "os.close(0); good = done; done(message); time.sleep(600)")
_failing("a child closes its stdout", "closed its stdout", "os.close(1); time.sleep(600)", when=SECOND)
_failing("a child answers another action", "another action", 'write(action="status", responseFor="x")', when=SECOND)
_failing("a child answers twice", "another action", "done(message); done(message)", when="number == 0")
_failing("a child answers nonsense", "did not answer", 'print("{\\"action\\": \\"stat", flush=True)', when=SECOND)
_failing("a child answers in UTF-16", "did not answer", 'os.write(1, json.dumps("x").encode("utf-16"))', when=SECOND)
_harmless("a child prints to stdout", 'print("hello"); sys.stdout.write("no end"); good(message)')
_harmless("a child prints megabytes without an end", 'sys.stdout.write("x" * 10**7); good(message)')
_harmless("a child writes megabytes to stderr", 'sys.stderr.write("y" * 10**7); good(message)')
_harmless("a child prints binary data", "os.write(1, bytes(range(256)) * 100); good(message)")
_harmless(
    "a child asks for impossible checkpoints",
    'assert checkpoint("9" * 60) == checkpoint("x") == checkpoint(["1"]) == "IllegalArgumentException"; good(message)',
)
_harmless(
    "a child asks for a checkpoint whose values nest",
    'assert checkpoint(json.loads("[" * 900 + "]" * 900)) == "IllegalArgumentException"; good(message)',
)
_harmless("a child forks, and the fork ends first", "os.fork() or os._exit(0); good(message)")
_harmless("a child asks for a checkpoint ten times", "[checkpoint() for _ in range(10)]; good(message)")
_harmless("a child is slow", "time.sleep(1); good(message)")


@cases.case("the start fails, and names the program and the property")
async def an_executable_that_is_missing() -> Outcome:
    """Name an executable that does not exist."""
    stream, data = _stream()
    async with (
        stream.open() as kinesis,
        efo.open_consumer(kinesis, application="app", leases=stream.leases, observer=stream.events.append) as consumer,
    ):
        reader = ChildReader(ChildSettings(("no-such-program",)), consumer.drain)
        await consumer.run(reader)
    text = str(reader.failure)
    right = "executableName" in text and os.strerror(2) in text and not stream.processed()
    return Outcome(text[:120], right, {"records_lost_silently": len(data) * (reader.failure is None)})
