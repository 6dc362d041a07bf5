"""A consumer of hostile records, in a process of its own: what it handles and dead-letters, how long its loop stands.

The records are put into a fake Kinesis by the case. The steps of the consumer's tasks are measured as
`tests/step_meter.py` does it: by their CPU time, of the best of a few runs, in units of a machine of ordinary speed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from proofs.attacks.programs import PRELUDE, STREAM, Ended, world
from proofs.situations.situation import CANARY, Outcome

BLOCKED_MS: Final = 50.0
GOOD: Final = b'{"good": 1}'
"""A record that is read by JSON. It follows the hostile ones, to show that the consumer goes on."""
_RUNS: Final = 3
_PROGRAM: Final = (
    PRELUDE
    + """
import json, resource, typing, uuid
from decimal import Decimal
from efo import deserializers as d
from tests.step_meter import Step, StepMeter, slowness
{make}

dead_letters, sizes = [], []

async def main():
    meter, scope = StepMeter(), trio.CancelScope()

    def seen():
        if len(dead_letters) + sum(sizes) >= {count}:
            scope.cancel()

    async def store(dead_letter):
        dead_letters.append([type(dead_letter.error).__name__, getattr(dead_letter.error, "reason", "")])
        seen()

    async def handle(values, batch):
        await trio.lowlevel.checkpoint()
        sizes.append(len(values))
        seen()

    async def handle_one(value, record, batch):
        await handle([value], batch)

    def observe(event):
        if isinstance(event, efo.events.SubscribeAttempted):
            meter.slowest = Step(0.0, "none")  # the start imports much, once, before it reads anything

    handlers = {handlers}
    observer = efo.telemetry.combine_observers(efo.telemetry.LoggingObserver(), observe)
    policy = efo.FailurePolicy(then="dead_letter", dead_letter=store)
    before = slowness()
    with scope, trio.move_on_after(60), meter.measure():
        await efo.consume("orders", **handlers, leases="memory:", on_error=policy, observer=observer, **options)
    seconds = meter.slowest.seconds / max(before, slowness())
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    slowest = dict(blocked_ms=1000 * seconds, rss=rss, task=meter.slowest.task)
    print(json.dumps(dict(dead_letters=dead_letters, sizes=sizes, **slowest)))

trio.run(main)
"""
)
_BATCHES: Final = "dict(handler=efo.deserialize(handle, read))"
_RECORDS: Final = "dict(record_handler=efo.deserialize_record(handle_one, read))"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a consumer did. `dead_letters`: the errors of its dead letters. `sizes`: how many values each call had.

    `blocked_ms`: its slowest step. `rss`: the most memory that it had, in MiB.
    """

    ended: Ended
    dead_letters: list[tuple[str, str]]
    sizes: list[int]
    blocked_ms: float
    rss: int


def consumed(make: str, *records: bytes, single: bool = False) -> Seen:
    """Return what a consumer did with these records. `make`: code that makes the deserializer `read`."""
    best: Seen | None = None
    for _ in range(_RUNS):
        with world(shards=1) as here:
            here.kinesis.put_many(STREAM, [(f"key {CANARY}", data) for data in records])
            handlers = _RECORDS if single else _BATCHES
            program = _PROGRAM.replace("{make}", make).replace("{count}", str(len(records)))
            ended = here.wait(here.start("-c", program.replace("{handlers}", handlers)), 120)
        seen = _seen(ended)
        best = seen if best is None or seen.blocked_ms < best.blocked_ms else best
        if ended.status != 0 or seen.blocked_ms < BLOCKED_MS:
            return seen
    assert best is not None
    return best


def _seen(ended: Ended) -> Seen:
    lines = [line for line in ended.out.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    dead_letters = [(kind, reason) for kind, reason in found.get("dead_letters", [])]
    return Seen(ended, dead_letters, found.get("sizes", []), found.get("blocked_ms", 0.0), found.get("rss", 0))


def outcome(seen: Seen, did: str, is_right: object) -> Outcome:
    """Return the outcome of a case. `is_right`: what the case itself found."""
    alive = seen.ended.status == 0
    held = alive and seen.blocked_ms < BLOCKED_MS and bool(is_right)
    end = "" if alive else f", exit {seen.ended.status}"
    counts = {"blocked_ms_worst": round(seen.blocked_ms, 1)}
    if seen.ended.status is not None and seen.ended.status < 0:
        counts["crashed"] = 1
    return Outcome(f"{did}; slowest step {seen.blocked_ms:.0f} ms, {seen.rss} MiB{end}", held, counts)


def refused(make: str, *records: bytes, reason: str = "") -> Outcome:
    """Return the outcome of records that must all be refused; the good one after them must be handled."""
    seen = consumed(make, *records, GOOD)
    right = [kind for kind, why in seen.dead_letters if kind == "DeserializationError" and reason in why]
    handled = sum(seen.sizes)
    first = seen.dead_letters[0][1][:60] if seen.dead_letters else ""
    did = f"{len(right)} of {len(records)} refused ({first}), {handled} handled"
    return outcome(seen, did, len(right) >= len(records) and handled + len(seen.dead_letters) == len(records) + 1)
