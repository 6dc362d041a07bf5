"""What nurseries raise, made fit for callers: one exception instead of a group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio

from efo.errors import EfoError, LeaseLostError

E = TypeVar("E", bound=BaseException)


@contextmanager
def collapse_groups() -> Iterator[None]:
    """Raise the one exception that a group of exceptions is about.

    That several tasks were at work is nobody's concern outside. Of several failures the first EfoError is raised, or
    else the first; the others are noted on it. Cancellations pass through; a failure beside them is raised in their
    stead, as trio has it of any exception that is raised while cancelled.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        failures, rest = group.split(Exception)
        if failures is None or (rest is not None and rest.split(trio.Cancelled)[1] is not None):
            raise
        errors = list(leaf_exceptions(failures))
        # A lost lease is the least of troubles: what else went wrong must not hide behind it.
        graver = [leaf for leaf in errors if not isinstance(leaf, LeaseLostError)] or errors
        error = next((leaf for leaf in graver if isinstance(leaf, EfoError)), graver[0])
        for other in errors:
            if other is not error:
                error.add_note(f"at the same time: {type(other).__name__}: {other}")
        raise error from error.__cause__


def leaf_exceptions(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """Yield the exceptions of a group and of the groups in it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaf_exceptions(error)
        else:
            yield error
