"""Starts real servers for tests on first use, on 127.0.0.1 and free ports."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Self

import pytest

Serve = Callable[[], AbstractContextManager[str]]
"""A context manager that runs a server and yields its URL. Raises NotInstalledError."""


class NotInstalledError(Exception):
    """The server is not installed. The message names it and how to install it."""


class Servers:
    """The running servers; a context manager that stops them all at its end."""

    def __init__(self) -> None:
        self._urls: dict[Serve, str] = {}
        self._missing: dict[Serve, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def url(self, serve: Serve) -> str:
        """Return the URL of a server, which is started on first use. If it is not installed, skip the test.

        The skip reason names the server.
        """
        if serve not in self._urls and serve not in self._missing:
            try:
                self._urls[serve] = self._stack.enter_context(serve())
            except NotInstalledError as error:
                self._missing[serve] = str(error)
        if serve in self._missing:
            pytest.skip(self._missing[serve])
        return self._urls[serve]
