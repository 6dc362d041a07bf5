"""A child process that is a task: a program in Python, without a process."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, suppress

import trio

from efo.exception_groups import collapse_groups
from efo_service.multilang.child import ChildError
from efo_service.multilang.messages import parse


class EndedError(Exception):
    """The program ends, as a process that exits."""


class FakeChild:
    """Runs `program(child)`, which reads and writes messages; `log` has what it read."""

    def __init__(self, shard_id):
        self.shard_id, self.pid = shard_id, 7
        self.has_ended, self.is_intact, self.ended = False, True, lambda: None
        self.log = []
        self._to_child, self._stdin = trio.open_memory_channel(1)
        self._stdout, self._from_child = trio.open_memory_channel(100)

    # --- the parent's side

    async def send(self, message):
        await trio.lowlevel.checkpoint_if_cancelled()
        self.is_intact = False
        try:
            await self._to_child.send(message)
        except trio.BrokenResourceError:
            raise await self.failure("closed its stdin") from None
        self.is_intact = True

    async def receive(self):
        try:
            return await self._from_child.receive()
        except trio.EndOfChannel:
            raise await self.failure("closed its stdout") from None

    async def failure(self, what):
        return ChildError(f"{self.shard_id}: its child process {what}")

    def close(self):
        self._to_child.close()

    # --- the child's side

    async def read(self):
        """Return the next message. Raises EndedError at the end of stdin."""
        try:
            message = json.loads(await self._stdin.receive())
        except trio.EndOfChannel:
            raise EndedError from None
        self.log.append(message)
        return message

    def write(self, **message):
        if (parsed := parse(json.dumps(message).encode())) is not None:
            self._stdout.send_nowait(parsed)

    def done(self, message):
        self.write(action="status", responseFor=message["action"])

    async def checkpoint(self, sequence=None, sub=None):
        """Ask for a checkpoint; return KCL's error, None if it was saved."""
        self.write(action="checkpoint", sequenceNumber=sequence, subSequenceNumber=sub)
        return (await self.read())["error"]

    async def run(self, program):
        with suppress(EndedError):
            await program(self)
        self.has_ended = True
        self._stdin.close()
        self._stdout.close()
        self.ended()


def opening(program, children):
    """Return an `open_child` that runs a program, shielded as a process is. `children`: gets each child."""

    @asynccontextmanager
    async def open_fake(_command, shard_id):
        child = FakeChild(shard_id)
        children.append(child)
        scope = trio.CancelScope(shield=True)

        async def run():
            with scope:
                await child.run(program)

        with collapse_groups():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                try:
                    yield child
                finally:
                    child.close()
                    scope.deadline = trio.current_time() + 1.0

    return open_fake
