"""Actions of the page go to the run of their stream."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from efo_service.streams.report import StreamsPage
from efo_service.web.live.actions import Action, ActionRefusedError
from efo_service.web.live.source import StreamView
from efo_service.web.process_problems import ProcessProblems
from tests.efo_service.web.live.views import view


class Run:
    def __init__(self) -> None:
        self.performed = []

    async def perform(self, action: Action) -> None:
        self.performed.append(action.action)

    def view(self) -> StreamView:
        return msgspec.structs.replace(view(), problems=("frozen",))


def page_of(**runs) -> StreamsPage:
    streams = [SimpleNamespace(name=name, run=run, failure=None) for name, run in runs.items()]
    return StreamsPage(SimpleNamespace(configured=lambda: iter(streams)))


async def test_what_is_wrong_with_the_process_comes_first_in_each_stream():
    problems = ProcessProblems()
    problems.began("reload_refused", "no such setting")
    streams = [SimpleNamespace(name=name, run=Run(), failure=None) for name in ("a", "b")]
    page = StreamsPage(SimpleNamespace(configured=lambda: iter(streams)), problems)
    assert [found.problems for found in (await page.snapshot()).streams] == [("no such setting", "frozen")] * 2


async def test_an_action_goes_to_the_run_of_its_stream():
    orders, clicks = Run(), Run()
    await page_of(orders=orders, clicks=clicks).perform(Action("pause", "s-0", stream="clicks"))
    await page_of(orders=orders).perform(Action("resume", "s-0"))
    assert (orders.performed, clicks.performed) == (["resume"], ["pause"])


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ("", "several streams: name one of them as stream"),  # their shards have the same ids
        ("other", "does not read the stream 'other'"),
        ("clicks", "the stream 'clicks' does not run: not yet"),
    ],
)
async def test_an_action_without_a_running_stream_is_refused(stream, reason):
    orders = Run()
    with pytest.raises(ActionRefusedError, match=reason):
        await page_of(orders=orders, clicks=None).perform(Action("pause", "s-0", stream=stream))
    assert orders.performed == []
