"""Visits the pages of three services: 4 shards, two streams in two workers, and 1,000 shards; in light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, get_args

from playwright.sync_api import Browser, Error, Page

from proofs.web import checks
from proofs.web.browser import Scheme, Visit, chromium
from proofs.web.service import STREAM, Service, running

FEW: Final = 4
MANY: Final = 1000
OTHERS: Final = {"clicks": 2}
"""A second stream, and its shards."""
NARROW: Final = 420
"""Pixels of a telephone."""


class Report:
    """What was checked. `tell`: called with one line for each check that failed."""

    def __init__(self, screenshots: Path, tell: Callable[[str], None] = lambda _line: None) -> None:
        self.pages: set[str] = set()
        self.checks = 0
        self.failures: list[str] = []
        self.screenshots: list[str] = []
        self._directory = screenshots
        self._tell = tell

    def check(self, page: str, name: str, wrong: Iterable[str]) -> None:
        """Count a check of a page, and what it found wrong."""
        self.pages.add(page)
        self.checks += 1
        try:
            found = list(wrong)
        except Error as error:  # something is not there, or not in time
            found = [error.message[:500]]
        for text in found:
            self.failures.append(f"{page}: {name}: {text}")
            self._tell(self.failures[-1])

    def picture(self, page: Page, name: str, *, full: bool = True) -> None:
        """Keep a picture of the page."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{name}.png"
        page.screenshot(path=path, full_page=full)
        self.screenshots.append(str(path))

    def as_json(self) -> dict[str, Any]:
        """Return the line that `make web-test` prints last."""
        return {
            "pages": len(self.pages),
            "checks": self.checks,
            "failed": len(self.failures),
            "failures": self.failures,
            "screenshots": self.screenshots,
        }


def visit_all(path: str, report: Report, *, many: int = MANY) -> None:
    """Run all checks with the Chromium at `path`. `many`: the shards of the larger stream."""
    with chromium(path) as browser:
        with TemporaryDirectory() as directory, running(Path(directory), FEW) as service:
            service.until_reading(FEW)
            _reshard(service)
            for scheme in get_args(Scheme):
                _visit(browser, service, report, f"few-{scheme}", scheme, _with_few)
            _visit(browser, service, report, "few-narrow", "light", _narrow, width=NARROW)
            _log_in(browser, service, report)
        with TemporaryDirectory() as directory, _of_two_workers(Path(directory)) as service:
            for stream, shards in {STREAM: FEW, **OTHERS}.items():
                service.until_reading(shards, stream)
            _visit(browser, service, report, "two-workers", "light", _with_streams)
        with TemporaryDirectory() as directory, running(Path(directory), many) as service:
            service.until_reading(many)
            split = sorted(service.fake.open_shards(STREAM))[:: many // 20]  # a twentieth of the hash keys each
            for shard_id in split:
                service.fake.split(STREAM, shard_id)
            service.put(5 * many)
            service.until_reading(many + len(split))
            for scheme in get_args(Scheme):
                _visit(browser, service, report, f"many-{scheme}", scheme, _with_many)


def _of_two_workers(directory: Path) -> AbstractContextManager[Service]:
    """Run two streams in two workers: their supervisor has the page of all."""
    return running(directory, FEW, others=OTHERS, workers=2)


def _reshard(service: Service) -> None:
    """Make a lineage: two splits and a merge."""
    first, second, *_ = sorted(service.fake.open_shards(STREAM))
    service.fake.split(STREAM, first)
    left, right = service.fake.split(STREAM, second)
    service.put()
    service.until_reading(FEW + 2)
    service.fake.merge(STREAM, left, right)
    service.put()
    service.until_reading(FEW + 1)


def _visit(
    browser: Browser,
    service: Service,
    report: Report,
    name: str,
    scheme: Scheme,
    look: Callable[[Page, Service, Report, str], None],
    width: int = 1360,
) -> None:
    visit = Visit(browser, service.address.url, scheme=scheme, width=width)
    try:
        page = visit.open()
        page.wait_for_selector(".tile", state="attached")
        look(page, service, report, name)
        report.check(name, "accessible", checks.accessible(page))
        report.check(name, "quiet", checks.quiet(visit))
    finally:
        visit.close()


def _with_few(page: Page, service: Service, report: Report, name: str) -> None:
    report.check(name, "rated", checks.rated(page, service))
    page.locator(".tile.s-current").first.click()
    report.picture(page, name)
    report.check(name, "complete", checks.complete(page, service))
    report.check(name, "bounded", checks.bounded(page))
    report.check(name, "walkable", checks.walkable(page))
    report.check(name, "sortable", checks.sortable(page))
    report.check(name, "guarded", checks.guarded(page))
    report.check(name, "live", checks.live(page, service))


def _with_streams(page: Page, service: Service, report: Report, name: str) -> None:
    report.check(name, "complete", checks.complete(page, service))
    report.check(name, "shared", checks.shared(page, workers=2))
    (other,) = OTHERS
    report.check(name, "choosable", checks.choosable(page, service, other))
    report.picture(page, name)
    report.check(name, "bounded", checks.bounded(page))


def _narrow(page: Page, service: Service, report: Report, name: str) -> None:
    report.check(name, "complete", checks.complete(page, service))
    report.check(name, "bounded", checks.bounded(page))
    report.picture(page, name)


def _with_many(page: Page, service: Service, report: Report, name: str) -> None:
    report.picture(page, name, full=False)
    report.check(name, "complete", checks.complete(page, service))
    report.check(name, "bounded", checks.bounded(page))
    report.check(name, "walkable", checks.walkable(page))
    report.check(name, "sortable", checks.sortable(page))
    page.locator(".tile[tabindex='0']").focus()
    page.keyboard.press("Enter")
    report.picture(page, f"{name}-zoomed", full=False)
    page.keyboard.press("0")


def _log_in(browser: Browser, service: Service, report: Report) -> None:
    visit = Visit(browser, service.address.url, scheme="dark")
    try:
        page = visit.open("/login")
        report.check("login", "accessible", checks.accessible(page))
        report.picture(page, "login")
        report.check("login", "logs in", checks.logs_in(page))
        report.check("few-dark", "acts", checks.acts(page, service))
        report.check("login", "quiet", checks.quiet(visit))
    finally:
        visit.close()
