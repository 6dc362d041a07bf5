from __future__ import annotations

from datetime import UTC, datetime

import pytest
import structlog

from efo.errors import ConfigurationError, ShardNotReadError
from efo.model import Checkpoint, Position
from efo.settings import LATEST
from efo_service.web.live.actions import Action, ActionRefusedError, Actions, perform_logged, seek_target


class FakeConsumer:
    def __init__(self) -> None:
        self.called = []

    def __getattr__(self, name):
        return lambda *arguments: self.called.append((name, *arguments))


@pytest.fixture
def actions():
    actions = Actions("orders")
    actions.consumer = FakeConsumer()
    return actions


@pytest.mark.parametrize("name", ["pause", "resume", "release"])
async def test_an_action_is_done_by_the_consumer(actions, name):
    await actions.perform(Action(name, "s-0", stream="orders"))
    assert actions.consumer.called == [(name, "s-0")]


async def test_a_seek_names_its_place(actions):
    await actions.perform(Action("seek", "s-0", to="123"))
    assert actions.consumer.called == [("seek", "s-0", Checkpoint("123"))]
    assert seek_target(" latest ") == LATEST
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    assert seek_target("2026-01-31T12:00:00Z") == Position.at_timestamp(moment)
    for wrong in ("", "yesterday", "SHARD_END"):
        with pytest.raises(ConfigurationError):
            seek_target(wrong)


async def test_an_action_that_cannot_be_done_is_refused_with_its_reason(actions):
    with pytest.raises(ActionRefusedError, match="a seek needs a place"):
        await actions.perform(Action("seek", "s-0"))
    with pytest.raises(ActionRefusedError, match="does not read the stream 'clicks'"):
        await actions.perform(Action("pause", "s-0", stream="clicks"))
    actions.consumer.pause = None
    actions.consumer = None
    with pytest.raises(ActionRefusedError, match="not open yet"):
        await actions.perform(Action("pause", "s-0"))


async def test_what_the_consumer_refuses_is_a_refusal(actions):
    def pause(shard_id: str) -> None:
        raise ShardNotReadError(f"this worker does not read {shard_id}")

    actions.consumer.pause = pause
    with pytest.raises(ActionRefusedError, match="this worker does not read s-0"):
        await actions.perform(Action("pause", "s-0"))


async def test_a_seek_is_refused_if_the_sink_owns_the_position():
    actions = Actions("orders", seek_refusal="the log keeps the position")
    actions.consumer = FakeConsumer()
    with pytest.raises(ActionRefusedError, match="the log keeps the position"):
        await actions.perform(Action("seek", "s-0", to="latest"))
    assert actions.consumer.called == []


async def test_an_action_is_logged_with_what_was_asked_from_where_and_its_result(actions):
    with structlog.testing.capture_logs() as lines:
        await perform_logged(actions.perform, Action("pause", "s-0"), "10.0.0.7")
        with pytest.raises(ActionRefusedError):
            await perform_logged(actions.perform, Action("seek", "s-0", to="x" * 9999), "10.0.0.7")
    done, refused = lines
    assert (done["event"], done["action"], done["shard_id"], done["address"]) == (
        "action_performed",
        "pause",
        "s-0",
        "10.0.0.7",
    )
    assert (refused["event"], len(refused["to"])) == ("action_refused", 200)
    assert "expected" in refused["reason"]
