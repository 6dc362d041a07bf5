"""What the page promises, checked in the browser. Each check returns what is wrong; nothing if it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, Page

from proofs.web.browser import Visit
from proofs.web.service import STREAM, TOKEN, Service

_WAIT: Final = 15_000
"""Milliseconds in which a page has to show what the service reported."""


def quiet(visit: Visit) -> Iterator[str]:
    """Nothing is loaded from elsewhere, and neither scripts nor the security policy complain."""
    yield from (f"request to another host: {url}" for url in visit.foreign)
    yield from visit.complaints


def accessible(page: Page) -> Iterator[str]:
    """Find no violation of WCAG 2.2 A and AA, or of axe's best practices."""
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    options = {"resultTypes": ["violations"], "runOnly": {"type": "tag", "values": tags}}
    for violation in Axe().run(page, options=options).response["violations"]:
        nodes = [node["html"][:120] for node in violation["nodes"][:3]]
        yield f"{violation['id']}: {violation['help']}: {nodes}"


def complete(page: Page, service: Service, stream: str = STREAM) -> Iterator[str]:
    """Each shard is on the map, and in the table with the same state: at once, or when the next snapshot has come."""
    deadline = time.monotonic() + _WAIT / 1000
    while (wrong := [*_incomplete(page, service, stream)]) and time.monotonic() < deadline:
        page.wait_for_timeout(200)
    yield from wrong


def _incomplete(page: Page, service: Service, stream: str) -> Iterator[str]:
    reported = service.live(stream)
    drawn = set(page.locator(".tile").evaluate_all("tiles => tiles.map(tile => tile.dataset.id)"))
    if drawn != set(reported):
        yield f"the map has {len(drawn)} shards, the service {len(reported)}"
    shown = page.locator("#page-number").inner_text()
    if not shown.endswith(f" of {len(reported)}"):
        yield f"the table has {shown} shards, the service {len(reported)}"
    if page.locator("#connection").inner_text() != "live":
        yield "the page does not say that it is live"


def shared(page: Page, workers: int) -> Iterator[str]:
    """See the workers that share the shards, each with some."""
    page.wait_for_function(
        "number => document.querySelectorAll('#workers tbody tr').length === number", arg=workers, timeout=_WAIT
    )
    if "does not answer" in page.locator("#workers").inner_text():
        yield f"a worker does not answer: {page.locator('#workers').inner_text()}"


def choosable(page: Page, service: Service, stream: str) -> Iterator[str]:
    """Choose another stream: the map, the table and the heading are that stream's."""
    page.locator("#stream").select_option(label=stream)
    page.wait_for_function(
        "number => document.querySelectorAll('.tile').length === number", arg=len(service.live(stream)), timeout=_WAIT
    )
    if page.locator("#stream-name").inner_text() != stream:
        yield f"the heading is not {stream}: {page.locator('#stream-name').inner_text()}"
    yield from complete(page, service, stream)


def bounded(page: Page) -> Iterator[str]:
    """Nothing is wider than the page, and no label sticks out of its shard."""
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        yield "the page scrolls sideways"
    wide = page.locator(".tile").evaluate_all(
        """tiles => tiles.filter(tile => [...tile.querySelectorAll('text')].some(
            text => text.getBBox().width > tile.querySelector('rect').getBBox().width + 1
        )).map(tile => tile.dataset.id)"""
    )
    if wide:
        yield f"labels are wider than their shards: {wide[:5]}"


def walkable(page: Page) -> Iterator[str]:
    """Reach the map by Tab and each shard by arrow keys, and zoom by keys; the details follow."""
    if page.locator(".tile[tabindex='0']").count() != 1:
        yield "not exactly one shard is in the order of Tab"
    page.locator("#legend button").last.focus()
    page.keyboard.press("Tab")
    first = _focused(page)
    page.keyboard.press("Home")
    top = _focused(page)
    page.keyboard.press("ArrowDown")
    below = _focused(page)
    if not all((first, top, below)) or top == below:
        yield f"Tab, Home and the arrow down lead to {first}, {top} and {below}"
    if below and page.locator("#details-title").inner_text() != below:
        yield f"the details are not those of {below}"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    if "of the hash keys" not in page.locator("#zoom-level").inner_text() and page.locator(".tile").count() > 8:  # noqa: PLR2004
        yield "Enter does not zoom to the shard"
    page.keyboard.press("0")
    if page.locator("#zoom-level").inner_text():
        yield "0 does not show all hash keys"


def sortable(page: Page) -> Iterator[str]:
    """Sort the table by its heads, and filter it by text and by state."""
    head = page.locator("#table thead th").nth(0)
    head.locator("button").click()
    ids = page.locator("#table tbody th").all_inner_texts()
    if ids != sorted(ids) or head.get_attribute("aria-sort") != "ascending":
        yield f"the table is not sorted by shard: {ids[:3]}"
    head.locator("button").click()
    if head.get_attribute("aria-sort") != "descending":
        yield "a second click does not sort the other way"
    page.locator("#filter").fill(ids[0])
    if page.locator("#table tbody th").all_inner_texts() != [ids[0]]:
        yield "the filter does not leave the shard that it names"
    page.locator("#filter").fill("")
    button = page.locator("#legend button[data-name='current']")
    button.click()
    if page.locator(".tile.s-current:not(.dim)").count() or button.get_attribute("aria-pressed") != "false":
        yield "a state that is switched off is still shown"
    button.click()


def live(page: Page, service: Service) -> Iterator[str]:
    """See a split without doing anything: two new shards, and the event."""
    before = set(service.live())
    children = service.fake.split(STREAM, min(service.fake.open_shards(STREAM)))
    try:
        for child in children:
            page.wait_for_selector(f".tile[data-id='{child}'].s-current", timeout=2 * _WAIT, state="attached")
        page.wait_for_function(
            "id => document.querySelector('#events').innerText.includes(id + ': started')",
            arg=children[0],
            timeout=_WAIT,
        )
    except Error as error:
        yield f"the children {children} of a split are not shown: {error.message[:200]}"
    if set(service.live()) - before != set(children):
        yield "the service tells of other shards than these children"


def rated(page: Page, service: Service) -> Iterator[str]:
    """See records that are put as a rate."""
    service.put(2000)
    try:
        page.wait_for_function(
            "() => parseFloat(document.querySelectorAll('#figures strong')[3].innerText) > 0", timeout=_WAIT
        )
    except Error as error:
        yield f"no rate is shown: {error.message[:200]}"


def guarded(page: Page) -> Iterator[str]:
    """Without the token the buttons are disabled, and the page tells how to get further."""
    page.locator("#table tbody button").first.click()
    if page.locator(".actions button:enabled").count():
        yield "actions are enabled without the token"
    if not page.locator(".actions a[href='/login']").count():
        yield "the page does not lead to the login"


def logs_in(page: Page) -> Iterator[str]:
    """Log in: a wrong token is refused, the right one opens a session that no script can see."""
    page.locator("#token").fill("not the token of this service")
    page.get_by_role("button", name="Log in").click()
    if "not the token" not in page.get_by_role("alert").inner_text():
        yield "a wrong token is not refused"
    page.locator("#token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_selector(".tile", timeout=_WAIT)
    seen = page.evaluate("[document.cookie, location.href, JSON.stringify(localStorage)].join(' ')")
    if TOKEN in seen or "efo_session" in seen:
        yield "scripts see the session or the token"


def acts(page: Page, service: Service) -> Iterator[str]:
    """Pause and resume a shard on the page: the service does it, and logs it."""
    shard_id = min(service.fake.open_shards(STREAM))
    page.locator("#filter").fill(shard_id)
    page.locator("#table tbody button").first.click()
    try:
        for action, state in (("Pause", "paused"), ("Resume", "current")):
            page.get_by_role("button", name=action, exact=True).click()
            page.wait_for_selector(f".tile[data-id='{shard_id}'].s-{state}", timeout=_WAIT, state="attached")
    except Error as error:
        yield f"an action has no effect: {error.message[:300]}"
    page.locator("#filter").fill("")
    logged = [line for line in service.lines() if line["event"] == "action_performed"]
    if [(line["action"], line["shard_id"]) for line in logged] != [("pause", shard_id), ("resume", shard_id)]:
        yield f"the log does not have the actions: {logged}"


def _focused(page: Page) -> str | None:
    found: Any = page.evaluate("document.activeElement.dataset.id ?? null")
    return None if found is None else str(found)
