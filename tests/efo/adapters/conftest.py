"""The forms in which a program may be written, for the tests of what holds in each of them."""

from __future__ import annotations

import os

import pytest

from tests.efo.adapters.programs import PROGRAMS, SOME, WITH_POLICY, use_virtual_time

ALL = os.environ.get("EFO_FORMS") == "all"
"""`make forms` sets the variable and tries all of them."""
TRIED = list(PROGRAMS if ALL else SOME)
ONE_OF_EACH = ["trio handler", "asyncio iteration", "sync handler", "sync streams handler"]


@pytest.fixture(params=TRIED)
def program(request, monkeypatch):
    use_virtual_time(monkeypatch)
    return PROGRAMS[request.param]


@pytest.fixture(params=[name for name in TRIED if name in WITH_POLICY])
def program_with_policy(request, monkeypatch):
    use_virtual_time(monkeypatch)
    return PROGRAMS[request.param]


@pytest.fixture(params=PROGRAMS if ALL else ONE_OF_EACH)
def program_of_each(request, monkeypatch):
    """A form of each surface, for what is decided below the surfaces."""
    use_virtual_time(monkeypatch)
    return PROGRAMS[request.param]


@pytest.fixture(params=PROGRAMS if ALL else ["asyncio handler"])
def program_for_minutes(request, monkeypatch):
    """A form that is tried for minutes of virtual time, which are seconds of the clock."""
    use_virtual_time(monkeypatch)
    return PROGRAMS[request.param]
