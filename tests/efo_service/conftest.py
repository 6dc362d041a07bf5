"""What all tests of the service have in common."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_the_shell(monkeypatch):
    """The settings of whoever runs the tests are not those of the tests."""
    for name in [name for name in os.environ if name.startswith("EFO_")]:
        monkeypatch.delenv(name)
