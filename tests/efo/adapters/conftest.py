"""The forms in which a program may be written, for the tests of what holds in each of them."""

from __future__ import annotations

import os

import pytest

from tests.efo.adapters.programs import PROGRAMS, SOME, WITH_POLICY, use_virtual_time

TRIED = list(PROGRAMS if os.environ.get("EFO_FORMS") == "all" else SOME)
"""`make forms` sets the variable and tries all of them."""


@pytest.fixture(params=TRIED)
def program(request, monkeypatch):
    use_virtual_time(monkeypatch)
    return PROGRAMS[request.param]


@pytest.fixture(params=[name for name in TRIED if name in WITH_POLICY])
def program_with_policy(request, monkeypatch):
    use_virtual_time(monkeypatch)
    return PROGRAMS[request.param]
