"""The page of a running service in a browser: a short form of `make web-test`."""

from __future__ import annotations

import pytest

from proofs.web.browser import find_chromium
from proofs.web.run import Report, visit_all

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
