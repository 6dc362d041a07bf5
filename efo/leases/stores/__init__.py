"""The lease stores: memory, SQLite, DynamoDB (KCL's lease table), PostgreSQL, Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from efo.errors import MissingExtraError


@contextmanager
def driver_of(server: str, package: str, *, extra: str) -> Iterator[None]:
    """Around the import of a driver: raise MissingExtraError if it is not installed, or cannot be loaded."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            f"the {server} lease store needs {package}: pip install 'efo[{extra}]' ({error})"
        ) from error
