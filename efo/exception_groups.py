"""Collapses exception groups, which nurseries raise, into one exception."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import overload

from efo.errors import EfoError, IsolateShardError, LeaseLostError


@contextmanager
def collapse_groups() -> Iterator[None]:
    """Raise one exception instead of an exception group.

    Callers need not know how many tasks ran. KeyboardInterrupt and SystemExit go before all others. Of several
    failures, the first EfoError is raised, otherwise the first failure; the others are added to it as notes. A failure
    that ends one shard alone comes last: it must not hide one that ends everything. A group of cancellations passes
    through. A failure beside cancellations is raised in their place, as trio does for any exception that is raised
    during a cancellation.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        import trio  # noqa: PLC0415 - `efo --help` uses the function below, and trio takes long to import

        failures, rest = group.split(Exception)
        exiting = group.subgroup((KeyboardInterrupt, SystemExit))
        if exiting is not None:
            raise next(leaf_exceptions(exiting)) from None
        if failures is None or (rest is not None and rest.split(trio.Cancelled)[1] is not None):
            raise
        errors = list(leaf_exceptions(failures))
        error = min(errors, key=_rank)
        known = {(type(error), str(error))}
        for other in errors:
            if (type(other), str(other)) not in known:  # what many shards raise alike is told once
                known.add((type(other), str(other)))
                error.add_note(f"at the same time: {type(other).__name__}: {other}")
        raise error from error.__cause__


def _rank(error: Exception) -> int:
    match error:
        case LeaseLostError():
            return 3
        case IsolateShardError():
            return 2
        case EfoError():
            return 0
        case _:
            return 1


@overload
def leaf_exceptions(error: Exception) -> Iterator[Exception]: ...
@overload
def leaf_exceptions(error: BaseException) -> Iterator[BaseException]: ...
def leaf_exceptions(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group and of its nested groups, or the error itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaf_exceptions(member)
    else:
        yield error
