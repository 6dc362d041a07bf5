"""Checks the links of the pages: files and anchors inside the checkout exist; addresses outside are well formed.

Nothing is requested from the network.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tools.docs.pages import ROOT, Link, Page

_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


def is_external(link: Link) -> bool:
    """Return whether a link leads out of the checkout."""
    return bool(_SCHEME.match(link.target)) or link.target.startswith("//")


def resolve(link: Link) -> tuple[str, str]:
    """Return the path from the checkout and the anchor of an internal link. "../a" leaves it."""
    path, _, anchor = unquote(link.target).partition("#")
    if not path:
        return link.page, anchor
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.page), path)), anchor


def problems(pages: Iterable[Page], root: Path = ROOT) -> Iterator[str]:
    """Return one sentence for each link that leads nowhere."""
    known = {page.path: page for page in pages}
    for page in known.values():
        for link in page.links:
            problem = _external_problem(link) if is_external(link) else _internal_problem(link, known, root)
            if problem:
                yield f"{link.place}: {link.target}: {problem}"


def _external_problem(link: Link) -> str | None:
    parts = urlsplit(link.target)
    if parts.scheme == "mailto":
        return None if "@" in parts.path else "no address"
    if parts.scheme != "https":
        return "write https://"
    return None if parts.hostname and "." in parts.hostname else "no host name"


def _internal_problem(link: Link, pages: dict[str, Page], root: Path) -> str | None:
    path, anchor = resolve(link)
    if path.startswith(("../", "/")):
        return "leads out of the repository"
    if not (root / path).exists():
        return "no such file"
    if path == link.page and not anchor:
        return "leads to the top of its own page: name a heading, or leave it out"
    if anchor and path in pages and anchor not in pages[path].anchors:
        return f"{path} has no heading #{anchor}"
    return None
