"""Collapses exception groups, which nurseries raise, into one exception, and shortens its traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import TypeVar, overload

from efo.errors import DeliveryError, EfoError, HandlerError, IsolateShardError, LeaseLostError, without_tracebacks
from efo.third_party_errors import is_of_application

E = TypeVar("E", bound=BaseException)


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
            if (type(other), str(other)) not in known:  # what many shards raise alike is reported once
                known.add((type(other), str(other)))
                error.add_note(f"at the same time: {type(other).__name__}: {other}")
        raise error from error.__cause__


def shorten(error: E) -> E:
    """Let an error of efo lose the frames below the call that is about to raise it. Return the same error.

    Its sentence tells what is wrong; a hundred lines of efo's own nurseries would hide it. Frames of an application are
    kept, with all around them. Causes stay as `__context__`, which a traceback does not show: they may quote secrets.
    """
    if not isinstance(error, EfoError) or isinstance(error, HandlerError | DeliveryError):
        return error
    links: dict[int, BaseException] = {}
    link: BaseException | None = error
    while link is not None and id(link) not in links:
        links[id(link)] = link
        link = link.__cause__ or link.__context__
    if any(is_of_application(frame) for link in links.values() for frame, _ in walk_tb(link.__traceback__)):
        return error
    for link in links.values():
        link.__context__, link.__cause__ = link.__cause__ or link.__context__, None  # which hides the context
    return without_tracebacks(error)


def shorten_at_exit(_kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
    """Shorten what an exit stack is about to raise: a generator's context manager would restore the traceback."""
    if error is not None:
        shorten(error)


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
