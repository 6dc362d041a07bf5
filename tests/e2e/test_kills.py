"""The killer of the end-to-end run, with victims that only pretend to work."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from efo.errors import EfoError
from proofs.e2e.kills import STALLED_SECONDS, Killer, Victim, hold_back


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


def victim(name: str, children: list[FakeChild], left: int, *, stalls: bool = False) -> Victim:
    async def progress() -> int:
        return 0 if stalls else int(trio.current_time())

    return Victim(name, children, progress, left, linger=2.0)


def run(seed: int) -> list[tuple[str, float]]:
    relays = [FakeChild("1"), FakeChild("2")]

    async def main() -> None:
        await Killer(seed, lambda _: None).run([victim("relay", relays, 6)])

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return [(f"{event} {child.name}", at) for child in relays for event, at in child.events]


def test_each_victim_gets_its_kills_and_is_started_again() -> None:
    events = run(1)
    assert sum(name.startswith("kill") for name, _ in events) == 6
    assert sum(name.startswith("start") for name, _ in events) == 6


def test_the_seed_says_who_and_when() -> None:
    assert run(7) == run(7)
    assert run(7) != run(8)


async def test_a_victim_that_does_not_recover_ends_the_run(autojump_clock) -> None:
    with pytest.raises(EfoError, match="no progress"):
        await Killer(1, lambda _: None).run([victim("spark", [FakeChild("s")], 1, stalls=True)])
    assert trio.current_time() > STALLED_SECONDS


async def test_the_load_waits_for_the_kills_and_for_nothing_after_them(autojump_clock) -> None:
    one = victim("relay", [FakeChild("1")], 3)
    hold = hold_back([one], 100)
    with trio.fail_after(1):
        await hold(25)
    with trio.move_on_after(50) as scope:
        await hold(26)
    assert scope.cancelled_caught
    one.left, one.done = 0, 3
    with trio.fail_after(1):
        await hold(99)
