"""Chromium without a display. It may not talk to anybody but the service, and says what it complains about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS: Final = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-dev-shm-usage",
)
Scheme = Literal["light", "dark"]


def find_chromium() -> str | None:
    """Return the path of Chromium; None if it is not installed. CHROMIUM names another one."""
    found = (shutil.which(name) for name in (os.environ.get("CHROMIUM", ""), *NAMES) if name)
    return next((path for path in found if path), None)


@contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """Start the browser at this path for the duration of the context."""
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium's sandbox does not work for root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*_ARGUMENTS, *sandbox])
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page that is open in a context of its own. `complaints`: errors of scripts, of the console and of requests."""

    def __init__(self, browser: Browser, url: str, *, scheme: Scheme = "light", width: int = 1360) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self._context = browser.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
        )
        self.page: Page = self._context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("requestfailed", self._on_failed)

    def open(self, path: str = "/") -> Page:
        """Open a path of the service."""
        self.page.goto(self.url + path)
        return self.page

    def close(self) -> None:
        """Close the page with its cookies."""
        self._context.close()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.foreign.append(request.url)

    def _on_failed(self, request: Request) -> None:
        if not request.url.endswith("/events"):  # it ends when the page is left
            self.complaints.append(f"failed: {request.url}: {request.failure}")
