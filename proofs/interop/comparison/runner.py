"""Makes the same calls on the fake and on an endpoint, and compares the responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from proofs.interop.comparison.caller import Caller
from proofs.interop.comparison.comparison import Difference, comparable, differences
from proofs.interop.comparison.script import Script

_CLEAN_UP: Final = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result. `calls`: how many were compared. `left`: streams of the endpoint that could not be deleted."""

    calls: int
    differences: list[Difference]
    left: list[str]


class UnreachableError(Exception):
    """The endpoint does not answer. The message says how it failed."""


async def compare(
    fake: Caller, endpoint: Caller, name: str, progress: Callable[[str], None], scope: trio.CancelScope | None = None
) -> Outcome:
    """Run the script on both sides, with streams whose names begin with `name`, and delete them, whatever happens.

    `scope`: to cancel the scripts. The callers must go on, because the streams are deleted then too.
    Raises UnreachableError.
    """
    listed = "can the streams be listed"
    await endpoint.call(listed, "ListStreams", Limit=1)
    observation = endpoint.observations.pop(listed)
    if observation.get("status") != 200:  # noqa: PLR2004 - HTTP
        raise UnreachableError(str(observation.get("failed") or observation.get("body")))
    scripts = Script(fake, name), Script(endpoint, name)
    left: list[str] = []
    try:
        with scope if scope is not None else trio.CancelScope():
            async with trio.open_nursery() as nursery:
                for script in scripts:
                    nursery.start_soon(script.run)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEAN_UP):
            left = await scripts[1].clean_up()
        for stream in left:
            command = f"aws kinesis delete-stream --enforce-consumer-deletion --stream-name {stream}"
            progress(f"the stream {stream} is NOT deleted. Delete it: {command}")
    ours, theirs = (
        {label: comparable(value, script.names) for label, value in caller.observations.items()}
        for caller, script in zip((fake, endpoint), scripts, strict=True)
    )
    return Outcome(len(ours), differences(ours, theirs), left)
