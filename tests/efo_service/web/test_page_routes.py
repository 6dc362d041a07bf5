"""The page over HTTP: what is open, what is guarded, and what no response lacks."""

from __future__ import annotations

import json

import httpx2
import pytest
import structlog
import trio
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from efo_service.web.app import create_app
from efo_service.web.health import Health
from efo_service.web.live.actions import ActionRefusedError
from efo_service.web.live.feed import Feed
from efo_service.web.live.shard_map import Live
from efo_service.web.live.source import Snapshot
from efo_service.web.page_routes import MAX_SECONDS, SEND_SECONDS, Page, Push
from efo_service.web.security.access import Access
from efo_service.web.security.guard import CERTIFICATE, HEADERS, Guard
from tests.efo_service.web.live.views import view

TOKEN = "correct-horse-battery-staple"
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAUSE = {"action": "pause", "shard_id": "s-0"}
GUARDED = ["/", "/map", "/status", "/events", "/session"]
OPEN = ["/livez", "/readyz", "/metrics", "/login", "/page/page.css", "/page/main.js"]


class Service:
    def __init__(self) -> None:
        self.performed = []

    async def take(self) -> Snapshot:
        return Snapshot((view(Live("s-0", "current", lag=0.0)),))

    async def perform(self, action) -> None:
        if action.shard_id != "s-0":
            raise ActionRefusedError("this worker does not read it")
        self.performed.append(action.action)


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def client_of(service):
    """Return a client of the app: from this address, to this host, of a service with or without a token."""

    def make(address="127.0.0.1", host="localhost:8080", *, token=None, certificate=False):
        guard = Guard(Access(*filter(None, [token])), wall_clock=lambda: 1000.0)
        page = Page(service.take, service.perform)
        app = create_app(Health(clock=lambda: 0.0), CollectorRegistry(), lambda: {"worker_id": "w-1"}, page, guard)

        async def connected(scope, receive, send):
            await app({**scope, CERTIFICATE: certificate}, receive, send)

        transport = httpx2.ASGITransport(connected, client=(address, 1))
        return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}")

    return make


async def test_the_page_and_its_files_are_served_with_the_hash_of_their_content(client_of):
    client = client_of()
    page = await client.get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for path in ("/page/main.js", "/page/page.css", "/page/icon.svg", "/"):
        found = await client.get(path)
        assert found.status_code == 200
        again = await client.get(path, headers={"if-none-match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for path in ("/page/index.html", "/page/none.js", "/page/..%2fapp.py", "/page/__init__.py", "/favicon.ico"):
        assert (await client.get(path)).status_code == 404


async def test_the_page_loads_nothing_from_elsewhere(client_of):
    client = client_of()
    names = ["", "login", *(f"page/{name}" for name in ("main.js", "map.js", "page.css", "icon.svg"))]
    for name in names:
        text = (await client.get(f"/{name}")).text.replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text
        assert " style=" not in text
        assert "innerHTML" not in text


@pytest.mark.parametrize("path", [*GUARDED[:3], GUARDED[4], *OPEN, "/none"])
async def test_each_response_has_the_security_headers(client_of, path):
    for client in (client_of(), client_of("10.0.0.7", "efo:80"), client_of("10.0.0.7", "efo:80", token=TOKEN)):
        for response in (await client.get(path), await client.put(path)):
            assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
            assert "cache-control" in response.headers
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy


@pytest.mark.parametrize("path", OPEN)
async def test_probes_metrics_and_the_login_are_open(client_of, path):
    assert (await client_of("10.0.0.7", "efo:80").get(path)).status_code in {200, 503}


@pytest.mark.parametrize("path", GUARDED)
async def test_without_a_token_only_this_machine_may_read(client_of, path):
    for client in (client_of("10.0.0.7", "efo:80"), client_of("127.0.0.1", "evil.example")):
        response = await client.get(path)
        assert response.status_code == 403
        assert "set EFO_SERVICE__TOKEN" in response.text


@pytest.mark.parametrize("path", ["/map", "/status", "/session"])
async def test_with_a_token_others_may_read_with_it(client_of, path):
    client = client_of("10.0.0.7", "efo:80", token=TOKEN)
    refused = await client.get(path)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert (await client.get(path, headers=BEARER)).status_code == 200


async def test_a_verified_client_certificate_may_read_and_not_act(client_of):
    client = client_of("10.0.0.7", "efo:80", certificate=True)
    assert (await client.get("/map")).status_code == 200
    assert (await client.post("/actions", json=PAUSE)).status_code == 403


async def test_a_browser_logs_in_and_out(client_of, service):
    client = client_of("10.0.0.7", "efo:80", token=TOKEN)
    page = await client.get("/")
    assert (page.status_code, page.headers["location"]) == (303, "/login")
    wrong = await client.post("/login", data={"token": "wrong"})
    assert (wrong.headers["location"], "set-cookie" in wrong.headers) == ("/login?wrong=1", False)
    assert "not the token" in (await client.get("/login?wrong=1")).text
    right = await client.post("/login", data={"token": TOKEN})
    cookie = right.headers["set-cookie"]
    assert (right.status_code, right.headers["location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert (await client.get("/")).status_code == 200
    assert (await client.get("/session")).json()["actions"] == "on"
    assert (await client.post("/actions", json=PAUSE)).json() == {"done": True, "reason": ""}
    assert (await client.post("/logout")).status_code == 303
    assert (await client.get("/map")).status_code == 401
    assert service.performed == ["pause"]


async def test_a_session_of_https_is_sent_over_https_alone(client_of):
    client = client_of("10.0.0.7", "efo:80", token=TOKEN)
    client.base_url = "https://efo"
    assert "Secure" in (await client.post("/login", data={"token": TOKEN})).headers["set-cookie"]


async def test_a_browser_logs_in_through_a_proxy_that_ends_https(client_of):
    async with client_of("10.0.0.7", "efo.example", token=TOKEN) as browser:
        response = await browser.post("/login", data={"token": TOKEN}, headers={"origin": "https://efo.example"})
    assert (response.status_code, response.headers["location"]) == (303, "/")
    assert "Secure" in response.headers["set-cookie"]


async def test_credentials_of_a_proxy_are_no_wrong_token(client_of):
    """A proxy with passwords of its own passes them on, with each request of the page."""
    basic = {"authorization": "Basic b3BlcmF0b3I6c2VjcmV0"}
    with structlog.testing.capture_logs() as lines:
        async with client_of("10.0.0.7", "efo:8080", token=TOKEN) as browser:
            for _ in range(11):
                assert (await browser.get("/map", headers=basic)).status_code == 401
            await browser.post("/login", data={"token": TOKEN})
            assert (await browser.get("/map", headers=basic)).status_code == 200
    assert [line["event"] for line in lines] == ["logged_in"]


async def test_actions_are_off_without_a_token_and_the_page_tells_how_to_switch_them_on(client_of, service):
    client = client_of()
    session = (await client.get("/session")).json()
    assert session["actions"] == "off"
    assert "EFO_SERVICE__TOKEN" in session["reason"]
    assert (await client.post("/actions", json=PAUSE)).status_code == 403
    with_token = client_of(token=TOKEN)
    assert (await with_token.get("/session")).json()["actions"] == "login"
    assert (await with_token.post("/actions", json=PAUSE)).status_code == 401
    assert service.performed == []


async def test_an_action_comes_by_post_as_json_from_the_page_itself(client_of, service):
    client = client_of(token=TOKEN)
    assert (await client.get("/actions", headers=BEARER)).status_code == 405
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert (await client.post("/actions", json=PAUSE, headers=BEARER | headers)).status_code == 403
    assert (await client.post("/actions", data=PAUSE, headers=BEARER)).status_code == 415
    for wrong in ({"action": "delete", "shard_id": "s-0"}, {"action": "pause"}, PAUSE | {"more": 1}, []):
        assert (await client.post("/actions", json=wrong, headers=BEARER)).status_code == 400
    no_text = {
        "content": b'{"action": "pause", "shard_id": "\xff"}',
        "headers": BEARER | {"content-type": "application/json"},
    }
    assert (await client.post("/actions", **no_text)).status_code == 400
    refused = await client.post("/actions", json=PAUSE | {"shard_id": "s-9"}, headers=BEARER)
    assert (refused.status_code, refused.json()) == (409, {"done": False, "reason": "this worker does not read it"})
    assert service.performed == []


async def test_wrong_tokens_are_logged_without_them_and_limited(client_of):
    client = client_of(token=TOKEN)
    with structlog.testing.capture_logs() as lines:
        for _ in range(10):
            assert (await client.get("/map", headers={"authorization": "Bearer guess-of-mine"})).status_code == 401
        blocked = await client.get("/map", headers=BEARER)
        assert (blocked.status_code, 0 < int(blocked.headers["retry-after"]) <= 60) == (429, True)
        assert (await client.post("/login", data={"token": TOKEN})).status_code == 429
        assert (await client.get("/livez", headers=BEARER)).status_code == 200
    assert [(line["event"], line["address"]) for line in lines] == [("wrong_token", "127.0.0.1")] * 10
    assert "guess-of-mine" not in str(lines)


async def test_the_map_is_the_snapshot_as_json(client_of):
    (stream,) = (await client_of().get("/map")).json()["streams"]
    assert (stream["stream"], stream["live"]) == ("orders", [{"id": "s-0", "state": "current", "lag": 0.0}])


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
