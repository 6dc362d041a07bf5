"""What an operator may do with a shard that this service reads: pause, resume, seek, release."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec
import structlog

from efo.errors import ConfigurationError, EfoError
from efo.model import Checkpoint, is_decimal
from efo.settings import PositionLike, parse_position
from efo_service.times import parse_time

ActionName = Literal["pause", "resume", "seek", "release"]


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request. `to`: of a seek: trim_horizon, latest, an ISO 8601 time, or a sequence number to continue after.

    `stream`: the name of the stream; empty if the service reads only one.
    """

    action: ActionName
    shard_id: str
    to: str = ""
    stream: str = ""


class Acts(Protocol):
    """The part of a consumer that acts."""

    def pause(self, shard_id: str) -> None:
        """Deliver no more batches of a shard."""
        ...

    def resume(self, shard_id: str) -> None:
        """Continue a paused shard."""
        ...

    def seek(self, shard_id: str, to: Checkpoint | PositionLike) -> None:
        """Continue a shard elsewhere."""
        ...

    def release(self, shard_id: str) -> None:
        """Hand the lease of a shard back."""
        ...


class ActionRefusedError(EfoError):
    """An action that the service does not perform. The message says why, and what to do instead."""

    error_type = "action_refused"


Perform = Callable[[Action], Awaitable[None]]
"""Performs an action. Raises ActionRefusedError."""


class Actions:
    """Performs actions on one consumer. `consumer` is None until it is open.

    `stream`: its name. `seek_refusal`: why a seek is refused; None if it is not.
    """

    def __init__(self, stream: str, *, seek_refusal: str | None = None) -> None:
        self.consumer: Acts | None = None
        self._stream = stream
        self._seek_refusal = seek_refusal

    async def perform(self, action: Action) -> None:
        """Perform an action. Raises ActionRefusedError."""
        if action.stream not in {"", self._stream}:
            raise ActionRefusedError(f"this service does not read the stream {action.stream[:200]!r}")
        if self.consumer is None:
            raise ActionRefusedError("the consumer is not open yet: try again when the service is ready")
        try:
            self._act(self.consumer, action)
        except EfoError as error:
            raise ActionRefusedError(str(error)) from error

    def _act(self, consumer: Acts, action: Action) -> None:
        match action.action:
            case "pause":
                consumer.pause(action.shard_id)
            case "resume":
                consumer.resume(action.shard_id)
            case "release":
                consumer.release(action.shard_id)
            case "seek":
                if self._seek_refusal is not None:
                    raise ActionRefusedError(self._seek_refusal)
                consumer.seek(action.shard_id, seek_target(action.to))


def seek_target(text: str) -> Checkpoint | PositionLike:
    """Return where a seek goes. Raises ConfigurationError if the text names no place."""
    text = text.strip()
    if is_decimal(text):
        return Checkpoint(text)
    if (ago := parse_time(text, time.time())) is not None:
        return parse_position(datetime.fromtimestamp(ago, UTC), "seek position")
    if not text:
        raise ConfigurationError(
            "a seek needs a place: trim_horizon, latest, a time, how long ago like -15m, or a sequence number"
        )
    return parse_position(text, "seek position")


async def perform_logged(perform: Perform, action: Action, address: str | None, by: str = "") -> None:
    """Perform an action, and log what was asked, from where and by whom, and the result. Raises ActionRefusedError."""
    asked = {name: value[:200] for name, value in msgspec.to_builtins(action).items() if value}
    log = structlog.get_logger().bind(**asked, address=address, by=by)
    try:
        await perform(action)
    except ActionRefusedError as error:
        log.warning("action_refused", reason=str(error))
        raise
    log.warning("action_performed")
