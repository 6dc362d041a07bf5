"""Makes one mistake, and returns what efo says of it. In this process, on a stream in memory, in virtual time."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import logging
import os
import re
import shlex
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Literal
from unittest.mock import patch

import trio
from trio.testing import MockClock

import efo
from efo.adapters import engine
from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo.testing import FakeKinesis, FakeSettings

STREAM: Final = "orders"
FILE: Final = "efo.toml"

Kind = Literal["program", "command", "configuration"]


@dataclass(frozen=True, slots=True)
class Mistake:
    """What one writes. `kind`: a program in Python, the arguments of `efo`, or a file of the configuration.

    `shown`: what the page shows of it; empty: all. `says`: a part of the line of the log that is meant, of several.
    """

    written: str
    kind: Kind = "program"
    shown: str = ""
    says: str = ""


class NothingSaidError(Exception):
    """efo says nothing of what was written, or another library or Python does."""


def said_of(mistake: Mistake) -> str:
    """Return what efo says of a mistake, in one line. Raises NothingSaidError."""
    with _away() as directory:
        match mistake.kind:
            case "program":
                said = _said_of_program(mistake)
            case "command":
                said = _said_by_command(mistake.written)
            case "configuration":
                (directory / FILE).write_text(mistake.written + "\n")
                said = _said_by_command(f"check-config --config {FILE}")
    return _normal(said, directory)


# --- programs --------------------------------------------------------------------------------------------------------

PRELUDE: Final = '''
async def handle(batch):
    """Do nothing with a batch."""


def work(batch):
    """Do nothing with a batch, in synchronous code."""


async def read(shard):
    async for batch in shard:
        shard.ack(batch)
'''
"""What the programs of the page have beside `stream`, an open client or a stream by its name."""


_ENOUGH: Final = 900.0
"""Virtual seconds for which a program runs that nothing ends."""


def _said_of_program(mistake: Mistake) -> str:
    names: dict[str, Any] = {"asyncio": asyncio, "efo": efo, "trio": trio}
    exec(compile(PRELUDE, "prelude", "exec"), names)  # noqa: S102 - it is ours
    code = compile(mistake.written, "program", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    function = FunctionType(code, names)
    lines = _Lines()
    try:
        with (
            _logged(lines),
            patch.object(engine, "run_trio", _in_virtual_time),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            if code.co_flags & inspect.CO_COROUTINE:
                _in_virtual_time(lambda: _on_trio(function, names))
            else:
                names["stream"] = _fake()
                function()
    except EfoError as error:
        return f"{type(error).__name__}: {error}"
    except BaseException as error:
        raise NothingSaidError(f"{type(error).__name__}: {error}") from error
    meant = [line for line in lines.said if mistake.says in line]
    if not meant:
        raise NothingSaidError("neither an error nor a line of the log")
    return meant[0]


async def _on_trio(function: Callable[[], Any], names: dict[str, Any]) -> None:
    with collapse_groups():
        async with _fake() as names["stream"]:
            with trio.move_on_after(_ENOUGH):
                await function()


@asynccontextmanager
async def _fake() -> AsyncIterator[efo.KinesisClient]:
    """Run a stream with ten records in one shard, and yield its client."""
    async with FakeKinesis(settings=FakeSettings()) as fake:
        fake.create_stream(STREAM)
        fake.put_many(STREAM, [(f"key-{number}", b'{"id": 1}') for number in range(10)])
        yield fake.kinesis(STREAM)


def _in_virtual_time(main: Callable[[], Any]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0.005))


class _Lines(logging.Handler):
    """Keeps the warnings and errors of the log, and the advice."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        if record.levelno >= logging.WARNING or "; " in record.getMessage():
            text = re.sub(r"^worker \S+: ", "", record.getMessage())
            self.said.append(f"{record.levelname} {text}")


@contextmanager
def _logged(lines: _Lines) -> Iterator[None]:
    logger = logging.getLogger("efo")
    before = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.level, logger.propagate = before


# --- commands --------------------------------------------------------------------------------------------------------


def _said_by_command(written: str) -> str:
    from efo_service.cli import call  # noqa: PLC0415 - the libraries of the commands

    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = call(shlex.split(written))
    if status == 0:
        raise NothingSaidError("exit status 0")
    return f"{errors.getvalue() or output.getvalue()} (exit status {status})"


# --- where, and as what ----------------------------------------------------------------------------------------------


@contextmanager
def _away() -> Iterator[Path]:
    """Work in an empty directory, with credentials that nobody checks, and without settings of this machine."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        directory = Path(name).resolve()
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "EFO_", "OTEL_"))}
        environ |= {
            "HOME": name,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "COLUMNS": "500",
        }
        with patch.dict(os.environ, environ, clear=True):
            yield directory


def _normal(text: str, directory: Path) -> str:
    """Return a text without what differs from run to run, in one line."""
    text = text.replace(str(directory), "DIRECTORY")
    text = re.sub(r"it is 20\S+Z now", "it is TIME now", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"[│╭╮╰╯─]+", " ", text)
    return " ".join(text.split())
