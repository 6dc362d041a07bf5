"""Server-sent events, by an ASGI app that is called in memory."""

from __future__ import annotations

import json

import pytest
import trio
from starlette.exceptions import HTTPException

from efo_service.web.live.feed import Feed
from efo_service.web.live.shard_map import Live
from efo_service.web.live.snapshot import Snapshot
from efo_service.web.push import MAX_SECONDS, SEND_SECONDS, Push
from efo_service.web.security.guard import Guard
from tests.efo_service.web.live.views import view


async def take() -> Snapshot:
    return Snapshot((view(Live("s-0", "current", lag=trio.current_time())),))


def scope(address="127.0.0.1"):
    return {
        "type": "http",
        "method": "GET",
        "path": "/events",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": (address, 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
    }


class Viewer:
    """Receives messages until it has `wanted`, then leaves. `seconds`: how long it takes for each."""

    def __init__(self, wanted: int, seconds: float = 0.0) -> None:
        self.messages = []
        self._wanted = wanted
        self._seconds = seconds
        self._gone = trio.Event()

    async def receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message) -> None:
        await trio.sleep(self._seconds)
        self.messages.append(message)
        if len(self.messages) >= self._wanted:
            self._gone.set()


@pytest.fixture
def feed():
    return Feed(take, max_viewers=1)


async def test_a_viewer_gets_a_snapshot_and_then_changes_until_it_leaves(feed, autojump_clock):
    viewer = Viewer(4)
    await Push(feed, Guard())(scope(), viewer.receive, viewer.send)
    start, *events = viewer.messages
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
    kinds = [event["body"].split(b"\n")[0] for event in events]
    assert kinds == [b"event: snapshot", b"event: changes", b"event: changes"]
    data = events[1]["body"].split(b"\n")[1].removeprefix(b"data: ")
    assert json.loads(data)["streams"][0]["live"][0]["id"] == "s-0"
    assert all(event["body"].endswith(b"\n\n") for event in events)
    assert feed.viewers == 0
    assert trio.current_time() == 2.0


async def test_a_viewer_that_takes_too_long_is_dropped(feed, autojump_clock):
    viewer = Viewer(99, seconds=SEND_SECONDS - 1)
    slow = Viewer(99)

    async def stuck(message):
        if message["type"] == "http.response.body":
            await trio.sleep_forever()

    await Push(feed, Guard())(scope(), slow.receive, stuck)
    assert (feed.viewers, trio.current_time()) == (0, SEND_SECONDS)
    assert viewer.messages == []


async def test_a_connection_ends_after_an_hour(feed, autojump_clock):
    viewer = Viewer(10**9, seconds=1.0)
    await Push(feed, Guard())(scope(), viewer.receive, viewer.send)
    assert MAX_SECONDS <= trio.current_time() <= MAX_SECONDS + 2


async def test_a_viewer_too_many_is_reported_to_come_later(feed, autojump_clock):
    viewer = Viewer(2)
    with feed.viewer():
        await Push(feed, Guard())(scope(), viewer.receive, viewer.send)
    assert viewer.messages[0]["status"] == 503
    assert (b"retry-after", b"30") in viewer.messages[0]["headers"]
    assert viewer.messages[1]["body"].startswith(b"too many viewers")


async def test_events_are_guarded(feed):
    viewer = Viewer(1)
    with pytest.raises(HTTPException, match="403"):
        await Push(feed, Guard())(scope("10.0.0.7"), viewer.receive, viewer.send)
