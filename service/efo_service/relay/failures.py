"""What happens to a shard that cannot be relayed: it is isolated, and the others go on, or everything stops (R11)."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from efo.errors import EfoError, IsolateShardError, class_name_of
from efo_service.relay.errors import RecordRefusedError, SinkDefectError, SinkError, SinkFencedError

ShardT = TypeVar("ShardT")


def isolating(
    relay: Callable[[ShardT], Awaitable[None]], *, refused_records: bool, sink_errors: bool
) -> Callable[[ShardT], Awaitable[None]]:
    """Return a reader that relays a shard and isolates it after these failures; all others are raised unchanged.

    A shard that another worker has opened since is always isolated: the sink is well, and the other worker goes on.
    `refused_records`: a record that no sink takes, and an unexpected exception of a sink, which a record may cause.
    `sink_errors`: all other errors of a sink.
    """

    async def read(shard: ShardT) -> None:
        try:
            await relay(shard)
        except (RecordRefusedError, SinkDefectError) as error:
            if not refused_records:
                raise
            record = error.record if isinstance(error, RecordRefusedError) else None
            raise IsolateShardError(str(error), record=record) from error
        except SinkFencedError as error:
            raise IsolateShardError(str(error)) from error
        except SinkError as error:
            if not sink_errors:
                raise
            raise IsolateShardError(str(error)) from error

    return read


@contextmanager
def defects(shard_id: str) -> Iterator[None]:
    """Turn an unexpected exception of a shard's sink into SinkDefectError, without its text: that may quote data."""
    try:
        yield
    except EfoError:
        raise
    except Exception as error:
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        raise SinkDefectError(
            f"{shard_id}: its sink failed with {class_name_of(error)} at {' > '.join(places[-4:])}: this is a defect,"
            " please report this line; nothing that was not committed was acked"
        ) from error
