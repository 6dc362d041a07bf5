"""The page of a running service in a browser: a short form of `make web-test`."""

from __future__ import annotations

import json
import signal

import httpx2
import pytest

from efo_service.exit_codes import Exit
from proofs.web.browser import find_chromium
from proofs.web.run import Report, visit_all
from tests.e2e.running import running

pytestmark = pytest.mark.e2e

SHARDS = 40
"""Of the larger stream. `make web-test` has 1,000."""


# The drivers of browsers leave sockets and processes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_the_page_keeps_its_promises_in_a_browser(tmp_path):
    path = find_chromium()
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    report = Report(tmp_path)
    visit_all(path, report, many=SHARDS)
    assert report.failures == []
    assert (report.checks, len(report.pages)) == (38, 6)


async def test_a_viewer_gets_the_shards_and_does_not_hold_up_the_drain(fake, files):
    async with running(files) as efo:
        url = (await efo.logged("started"))["url"]
        async with (
            httpx2.AsyncClient(base_url=url, trust_env=False) as client,
            client.stream("GET", "/events") as events,
        ):
            assert events.headers["content-type"] == "text/event-stream"
            async for line in events.aiter_lines():
                if line.startswith("data: ") and json.loads(line[6:])["streams"][0]["live"]:
                    break
            efo.process.send_signal(signal.SIGTERM)
            assert await efo.ended() == Exit.OK, efo.stderr
