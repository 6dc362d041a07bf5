"""Fixtures of all tests of the service."""

from __future__ import annotations

import os

import pytest

from efo_service.relay import doubt


@pytest.fixture(autouse=True)
def no_settings_of_the_shell(monkeypatch):
    """Remove EFO_ variables of the shell that runs the tests."""
    for name in [name for name in os.environ if name.startswith("EFO_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def damage_is_read_again_without_pauses(monkeypatch):
    """Let a damaged log be read again at once."""
    monkeypatch.setattr(doubt, "PAUSE", 0.0)
