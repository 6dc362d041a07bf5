"""A check of a lease store: an async function of two stores on the same leases. It raises AssertionError."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from efo.leases.store import LeaseStore
from efo.model import MAX_HASH_KEY, Checkpoint, HashKeyRange, Lease

Write = Callable[[LeaseStore, Lease], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LeaseStoreCheck:
    """A check, by its function's name and, if it has any, the number of its argument."""

    function: Callable[..., Awaitable[None]]
    arguments: tuple[Any, ...] = ()
    number: int | None = None

    @property
    def name(self) -> str:
        """What must hold, in words."""
        number = "" if self.number is None else f" [{self.number}]"
        return self.function.__name__.replace("_", " ") + number

    async def run(self, one: LeaseStore, other: LeaseStore) -> None:
        """Check two stores on the same leases, of which there are none yet. Raises AssertionError."""
        await self.function(one, other, *self.arguments)


CHECKS: Final[list[LeaseStoreCheck]] = []
"""All checks."""


def check(arguments: Sequence[Any] = ()) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """Add a function to CHECKS: once, or for each of these arguments."""

    def add(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        found = [LeaseStoreCheck(function, (argument,), number) for number, argument in enumerate(arguments)]
        CHECKS.extend(found or [LeaseStoreCheck(function)])
        return function

    return add


def same(one: object, *expected: object) -> None:
    """Check that all are equal."""
    for each in expected:
        if one != each:
            raise AssertionError(f"{one!r} is not {each!r}")


def holds(condition: object) -> None:
    """Check that something holds."""
    if not condition:
        raise AssertionError("it does not hold")


@contextmanager
def raises(kind: type[Exception]) -> Iterator[None]:
    """Check that the block raises this."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


async def found(store: LeaseStore, key: str) -> Lease:
    """Return the lease with this key."""
    lease = await store.get(key)
    if lease is None:
        raise AssertionError(f"there is no lease {key}")
    return lease


async def only(store: LeaseStore) -> Lease:
    """Return the only lease of a store."""
    leases = await store.list()
    if len(leases) != 1:
        raise AssertionError(f"{len(leases)} leases, not one")
    return leases[0]


FULL: Final = Lease(
    "shardId-000000000007",
    Checkpoint("49590338271490256608559692538361571095921575989136588898", 3),
    owner="ann",
    counter=41,
    owner_switches=2,
    parents=("shardId-000000000002", "shardId-000000000003"),
    children=("shardId-000000000009",),
    hash_key_range=HashKeyRange("0", str(MAX_HASH_KEY)),
    latest_at=1_767_225_600.125,
    checkpoint_owner="bob",
    pending_checkpoint=Checkpoint("49590338271490256608559692538361571095921575989136588899", 1),
    pending_checkpoint_state=b"\x00\xffstate",
    throughput_kbps=1234.5,
    stream_created_at=1_767_000_000.25,
    unread_since=1_767_225_601.5,
)
TIMES: Final[dict[str, Any]] = {"stream_created_at": 1_767_000_000.125, "unread_since": 1_767_225_700.1234567}


async def write_renew(store: LeaseStore, lease: Lease) -> None:
    await store.renew(lease)


async def write_release(store: LeaseStore, lease: Lease) -> None:
    await store.release(lease)


async def write_checkpoint(store: LeaseStore, lease: Lease) -> None:
    await store.checkpoint(lease, Checkpoint.SHARD_END)


async def write_request(store: LeaseStore, lease: Lease) -> None:
    await store.request_handoff(lease, "cid")


async def write_take(store: LeaseStore, lease: Lease) -> None:
    await store.take(lease, "bob")


async def write_reset(store: LeaseStore, lease: Lease) -> None:
    await store.reset(lease, Checkpoint.TRIM_HORIZON)


async def write_children(store: LeaseStore, lease: Lease) -> None:
    await store.save_children(lease, ("c",))


HOLDER_WRITES = [write_renew, write_release, write_checkpoint]
