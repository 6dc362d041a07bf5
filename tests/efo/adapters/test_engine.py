"""The trio thread of a surface, where the surfaces themselves cannot choose the moment."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

import efo
from efo.adapters.engine import Engine
from efo.sync.caller_side import CallerSide, open_engine
from tests.efo.adapters.programs import use_virtual_time


def test_a_call_while_it_is_being_closed_is_refused_and_the_rest_is_closed_in_order(monkeypatch):
    use_virtual_time(monkeypatch)
    runs, steps = [], []

    @asynccontextmanager
    async def opening():
        yield "value"
        runs.append(engine.run(trio.sleep, 0))  # as another thread does while a producer sends what is left
        await trio.sleep(60)
        steps.append("closed")

    engine = Engine(opening(), CallerSide(), lambda _value: None)
    with open_engine(engine):
        pass
    assert steps == ["closed"]
    with pytest.raises(efo.errors.EfoError, match="being closed"):
        runs[0].ended.result(0)


def test_a_mistake_between_the_threads_ends_what_is_open_with_that_error(monkeypatch):
    use_virtual_time(monkeypatch)
    steps = []

    @asynccontextmanager
    async def opening():
        try:
            yield "value"
        finally:
            steps.append("closed")

    def fail():
        raise ValueError("a mistake")

    engine = Engine(opening(), CallerSide(), lambda _value: None)
    engine.start()
    run = engine.run(trio.sleep_forever)
    engine.post(fail)
    for ended in (run.ended, engine.closed):
        assert str(ended.exception(60)) == "a mistake"
    assert steps == ["closed"]

    engine = Engine(opening(), CallerSide(), lambda _value: 1 / 0)
    with pytest.raises(ZeroDivisionError), open_engine(engine):
        pass
