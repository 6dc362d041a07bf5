"""Real servers for tests, on 127.0.0.1 and free ports: each is started when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Self

import pytest

Serve = Callable[[], AbstractContextManager[str]]
"""Starts a server, gives its URL, and stops it. Raises NotInstalledError."""


class NotInstalledError(Exception):
    """The server is not on this machine. The message says which one, and how it comes there."""


class Servers:
    """The servers that run; `with Servers() as servers:` stops them all at the end."""

    def __init__(self) -> None:
        self._urls: dict[Serve, str] = {}
        self._missing: dict[Serve, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def url(self, serve: Serve) -> str:
        """Return the URL of a server; skip the test by name where it is not installed."""
        if serve not in self._urls and serve not in self._missing:
            try:
                self._urls[serve] = self._stack.enter_context(serve())
            except NotInstalledError as error:
                self._missing[serve] = str(error)
        if serve in self._missing:
            pytest.skip(self._missing[serve])
        return self._urls[serve]
