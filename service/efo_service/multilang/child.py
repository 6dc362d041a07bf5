"""A child process that speaks the protocol: started, written to, read from, and ended.

stdout has messages, and maybe lines that a library prints: these are passed on to efo's stderr, as all of the child's
stderr is, with the shard's id before each line.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from efo.checks import shown
from efo.errors import EfoError
from efo.exception_groups import collapse_groups
from efo_service.multilang.messages import CheckpointRequest, StatusMessage, parse

EXIT_SECONDS: Final = 10.0
"""How long a child may take to end after its stdin is closed. It is then terminated."""
KILL_SECONDS: Final = 2.0
"""How long it may take after that, or if efo itself has no time: it is then killed, with its own children."""
PIPE_SECONDS: Final = 1.0
"""How long its output is read after it has ended: what it started, and left behind, may keep the pipes open."""
MAX_LINE: Final = 64 * 1024
"""Bytes of a line of output that are kept until it ends. No message is longer: more is passed on as it comes."""
PIPE_BYTES: Final = (1024 * 1024, 256 * 1024)
"""What a child's stdin takes at once: the first size that the system allows. A message that fits is one write; of any
other, Linux wakes the writer for each page that the child has read. Memory is used only for what is in the pipe."""
_MESSAGES: Final = 64
"""Messages of a child that may wait: more stay in its pipe, and it has to wait."""

Output = Callable[[Sequence[bytes]], object]
"""Takes lines of a child's output, without their ends."""


class ChildError(EfoError):
    """The child process of a shard failed. What it did not checkpoint is read again."""

    error_type = "child_process"


class Child:
    """A running child process. `ended`: called once, when its stdout has ended. `has_ended`: whether it has."""

    def __init__(self, shard_id: str, process: trio.Process, output: Output) -> None:
        self.shard_id = shard_id
        self.pid: int = process.pid
        self.has_ended = False
        self.ended: Callable[[], object] = lambda: None
        self.is_intact = True
        self._process = process
        self._output = output
        self._messages, self._received = trio.open_memory_channel[StatusMessage | CheckpointRequest](_MESSAGES)

    async def send(self, message: bytes) -> None:
        """Write a message. Raises ChildError if the child does not read any more.

        A cancellation may leave half of it in the pipe: then `is_intact` is false, and nothing can be sent after it.
        """
        assert self._process.stdin is not None  # noqa: S101 - opened with a pipe
        await trio.lowlevel.checkpoint_if_cancelled()  # nothing is in the pipe yet
        self.is_intact = False
        try:
            await self._process.stdin.send_all(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise await self.failure("closed its stdin") from None
        self.is_intact = True

    async def receive(self) -> StatusMessage | CheckpointRequest:
        """Return its next message. Raises ChildError if its stdout ends."""
        try:
            return await self._received.receive()
        except trio.EndOfChannel:
            raise await self.failure("closed its stdout") from None

    async def failure(self, what: str) -> ChildError:
        """Return the error of a child that has ended, with its exit status; or of one that did `what`."""
        with trio.move_on_after(PIPE_SECONDS):
            status = await self._process.wait()
            how = f"was ended by {_name_of(-status)}" if status < 0 else f"ended with exit status {status}"
            return ChildError(f"{self.shard_id}: its child process {self.pid} {how}: see its stderr above")
        return ChildError(f"{self.shard_id}: its child process {self.pid} {what}")

    async def read_stdout(self) -> None:
        """Queue the messages, and pass on all other lines. Runs until the pipe ends."""
        try:
            async for lines in _lines_of(self._process.stdout):
                noise = []
                for line in lines:
                    if (message := parse(line)) is not None:
                        await self._messages.send(message)
                    elif line.strip():
                        noise.append(line)
                if noise:
                    self._output(noise)
        finally:
            self.has_ended = True
            self._messages.close()
            self.ended()

    async def read_stderr(self) -> None:
        """Pass on its stderr. Runs until the pipe ends."""
        async for lines in _lines_of(self._process.stderr):
            self._output(lines)

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._process.wait()

    async def close(self, seconds: float) -> None:
        """Close its stdin, which asks it to end; terminate it after `seconds`, kill it after KILL_SECONDS more."""
        assert self._process.stdin is not None  # noqa: S101 - opened with a pipe
        await self._process.stdin.aclose()
        for wait, number in ((seconds, signal.SIGTERM), (KILL_SECONDS, signal.SIGKILL)):
            with trio.move_on_after(wait):
                await self._process.wait()
                return
            self._signal(number)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _name_of(number: int) -> str:
    """Return the name of a signal; most real-time signals have none."""
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"


async def _lines_of(pipe: trio.abc.ReceiveStream | None) -> AsyncIterator[list[bytes]]:
    """Yield the lines that have arrived, until the pipe ends. A line that is too long comes in pieces."""
    assert pipe is not None  # noqa: S101 - opened with pipes
    rest = b""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while chunk := await pipe.receive_some(MAX_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_LINE:
                lines, rest = [*lines, rest], b""
            if lines:
                yield lines
    if rest:
        yield [rest]


def passing_on(shard_id: str, write: Callable[[bytes], object] | None = None) -> Output:
    """Return a function that writes a child's output to stderr, with the shard's id before each line."""
    prefix = f"[{shard_id}] ".encode()
    write = _to_stderr if write is None else write

    def output(lines: Sequence[bytes]) -> None:
        write(b"".join(prefix + line.rstrip(b"\r") + b"\n" for line in lines))

    return output


def _to_stderr(text: bytes) -> None:
    sys.stderr.buffer.write(text)
    sys.stderr.buffer.flush()


@asynccontextmanager
async def open_child(command: Sequence[str], shard_id: str, output: Output | None = None) -> AsyncIterator[Child]:
    """Start a child process for a shard. Leaving the context ends it, soon if by an exception. Raises ChildError.

    It has a process group of its own: Ctrl-C does not reach it, and what it starts ends with it.
    """
    try:
        process = await trio.lowlevel.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise ChildError(f"{shard_id}: executableName: cannot start {shown(command[0])}: {reason}") from error
    _enlarge(process.stdin)
    child = Child(shard_id, process, output or passing_on(shard_id))
    with collapse_groups():
        async with trio.open_nursery() as pipes_open:
            reading = trio.CancelScope(shield=True)  # a child must not wait for its output while it is being ended
            pipes_open.start_soon(_read, reading, child)
            seconds = KILL_SECONDS
            try:
                yield child
                seconds = EXIT_SECONDS
            finally:
                with trio.CancelScope(shield=True):
                    await child.close(seconds)
                reading.deadline = trio.current_time() + PIPE_SECONDS


def _enlarge(pipe: trio.abc.SendStream | None) -> None:
    """Let a pipe take more at once, if the system allows that and the user has not too many such pipes."""
    for size in PIPE_BYTES:
        with suppress(OSError, AttributeError):  # the constant is Linux'
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, size)  # type: ignore[union-attr]
            return


async def _read(scope: trio.CancelScope, child: Child) -> None:
    with scope:
        async with trio.open_nursery() as ends:
            ends.start_soon(_end_pipes, child, ends.cancel_scope)
            async with trio.open_nursery() as reading:
                reading.start_soon(child.read_stdout)
                reading.start_soon(child.read_stderr)
            ends.cancel_scope.cancel()


async def _end_pipes(child: Child, reading: trio.CancelScope) -> None:
    """Read no more of a process that has ended, however long what it has left behind keeps its pipes open."""
    await child.wait()
    await trio.sleep(PIPE_SECONDS)
    reading.cancel()
