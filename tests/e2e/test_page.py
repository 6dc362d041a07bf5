"""The page of a running service: its feed; and in a browser, a short form of `make web-test`."""

from __future__ import annotations

import signal

import pytest
import trio

from efo_service.exit_codes import Exit
from proofs.web.browser import find_chromium
from proofs.web.run import Report, visit_all
from tests.e2e.running import running

pytestmark = pytest.mark.e2e

SHARDS = 40
"""Of the larger stream. `make web-test` has 1,000."""


@pytest.mark.runner
# The drivers of browsers leave sockets and processes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_the_page_keeps_its_promises_in_a_browser(tmp_path):
    path = find_chromium()
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    report = Report(tmp_path)
    visit_all(path, report, many=SHARDS)
    assert report.failures == []
    assert (report.checks, len(report.pages)) == (44, 7)


async def test_a_viewer_gets_the_shards_and_does_not_hold_up_the_drain(fake, files):
    async with running(files) as efo:
        url = (await efo.logged("started"))["url"]
        async with await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2])) as viewer:
            await viewer.send_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            seen = b""
            while b'"state":"current"' not in seen:
                seen += await viewer.receive_some()
            assert b"event: snapshot\ndata: {" in seen
            efo.process.send_signal(signal.SIGTERM)
            assert await efo.ended() == Exit.OK, efo.stderr
