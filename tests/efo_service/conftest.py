"""Fixtures of all tests of the service."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_the_shell(monkeypatch):
    """Remove EFO_ variables of the shell that runs the tests."""
    for name in [name for name in os.environ if name.startswith("EFO_")]:
        monkeypatch.delenv(name)
