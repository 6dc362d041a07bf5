"""A fuzz target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A parser to fuzz.

    `check`: takes any bytes. Raises AssertionError, or lets another exception through, if a property does not hold.
    `seeds`: makes inputs from real frames. `dictionary`: byte strings that the fuzzer may insert. `max_length`: the
    maximum length of an input, in bytes.
    """

    name: str
    description: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    dictionary: tuple[bytes, ...] = ()
    max_length: int = 4096


def require(condition: object, message: str) -> None:
    """Raise AssertionError unless the condition holds. Unlike `assert`, this also works under `python -O`."""
    if not condition:
        raise AssertionError(message)
