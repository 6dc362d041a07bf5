"""What a target is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Something to fuzz.

    `check` takes any bytes, and raises AssertionError, or whatever escapes, where a property is broken. `seeds` makes
    inputs from real frames. `words` are bytes that the fuzzer may put in. `longest`: bytes of an input at most.
    """

    name: str
    about: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[bytes, ...] = ()
    longest: int = 4096


def hold(condition: object, said: str) -> None:
    """Raise AssertionError unless the condition holds; unlike `assert` also under `python -O`."""
    if not condition:
        raise AssertionError(said)
