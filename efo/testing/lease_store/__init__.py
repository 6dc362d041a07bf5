"""What every lease store must do, for the tests of an application that has a store of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from efo.checks import check_callable
from efo.exception_groups import collapse_groups
from efo.leases.store import LeaseStore
from efo.testing.lease_store import batches, handoffs, writes
from efo.testing.lease_store.checking import CHECKS, LeaseStoreCheck

__all__ = ("CHECKS", "LeaseStoreCheck", "check_lease_store")

_ = (batches, handoffs, writes)  # their checks are in CHECKS when they are imported


async def check_lease_store(open_store: Callable[[str], Any]) -> None:
    """Check a lease store by all that efo's own stores are checked by, on trio. Raises AssertionError.

    `open_store`: a function of a name that returns a store, or an async context manager of one. Stores with one name
    share their leases; a name that was not used before has none. Each check takes a new name and opens two stores, as
    two workers do. Raises ConfigurationError.
    """
    check_callable("open_store", open_store, "a function of a name that returns a lease store", "name")
    for check in CHECKS:
        name = f"efo-{uuid.uuid4().hex}"
        async with AsyncExitStack() as stack:
            one, other = [await _entered(stack, open_store(name)) for _ in range(2)]
            try:
                with collapse_groups():
                    await check.run(one, other)
            except AssertionError as error:
                raise AssertionError(f"{check.name}: {error}") from error
            for lease in await one.list():
                await one.delete(lease.key)


async def _entered(stack: AsyncExitStack, opened: Any) -> LeaseStore:
    store: LeaseStore = await stack.enter_async_context(opened) if hasattr(opened, "__aenter__") else opened
    return store
