"""The killer of the end-to-end run, with fake targets."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from efo.errors import EfoError
from proofs.e2e.kills import STALLED_SECONDS, Killer, Target, pace_load


class FakeChild:
    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[tuple[str, float]] = []
        self.alive = True

    def check(self) -> None:
        assert self.alive

    async def kill(self) -> None:
        self.alive = False
        self.events.append(("kill", trio.current_time()))

    async def start(self) -> None:
        self.alive = True
        self.events.append(("start", trio.current_time()))


def target(name: str, children: list[FakeChild], kills: int, *, stalls: bool = False) -> Target:
    async def progress() -> int:
        return 0 if stalls else int(trio.current_time())

    return Target(name, children, progress, kills, max_delay=2.0)


def run(seed: int) -> list[tuple[str, float]]:
    relays = [FakeChild("1"), FakeChild("2")]

    async def main() -> None:
        await Killer(seed, lambda _: None).run([target("relay", relays, 6)])

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return [(f"{event} {child.name}", at) for child in relays for event, at in child.events]


def test_each_target_is_killed_and_restarted_as_often_as_requested() -> None:
    events = run(1)
    assert sum(name.startswith("kill") for name, _ in events) == 6
    assert sum(name.startswith("start") for name, _ in events) == 6


def test_the_seed_determines_the_kills_and_their_times() -> None:
    assert run(7) == run(7)
    assert run(7) != run(8)


async def test_a_target_without_progress_fails_the_run(autojump_clock) -> None:
    with pytest.raises(EfoError, match="no progress"):
        await Killer(1, lambda _: None).run([target("spark", [FakeChild("s")], 1, stalls=True)])
    assert trio.current_time() > STALLED_SECONDS


async def test_the_load_waits_for_the_kills_and_no_longer(autojump_clock) -> None:
    relay = target("relay", [FakeChild("1")], 3)
    wait = pace_load([relay], 100)
    with trio.fail_after(1):
        await wait(25)
    with trio.move_on_after(50) as scope:
        await wait(26)
    assert scope.cancelled_caught
    relay.kills_left, relay.kills_done = 0, 3
    with trio.fail_after(1):
        await wait(99)
