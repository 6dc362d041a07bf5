"""The pages of the documentation, as Markdown: their headings, links and code blocks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[2]
_TOP: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_MARK: Final = re.compile(r"<!--\s*((?:example|file)\b.*?)\s*-->\s*$", re.DOTALL)
_ID: Final = re.compile(r"""<a\s[^>]*\b(?:id|name)=["']([^"']+)["']""")
_SOURCE: Final = re.compile(r"""<img\s[^>]*\bsrc=["']([^"']+)["']""")


@dataclass(frozen=True)
class Block:
    """A code block. `line`: of its first fence, from 1. `mark`: the comment before it, such as "example: poison".

    `language` is "" if the fence names none, and "indented" for a block without fences.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""

    @property
    def place(self) -> str:
        """The page and the line, for messages."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Link:
    """A link or an image. `target`: as it is written."""

    page: str
    line: int
    target: str

    @property
    def place(self) -> str:
        """The page and the line, for messages."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A page. `path`: relative to the checkout, with slashes. `anchors`: as GitHub makes them from the headings."""

    path: str
    text: str
    title: str
    anchors: frozenset[str]
    links: tuple[Link, ...]
    blocks: tuple[Block, ...]


def page_paths(root: Path = ROOT) -> list[str]:
    """Return the paths of all pages, those of the top of the checkout first."""
    docs = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    return [*(name for name in _TOP if (root / name).exists()), *docs]


@cache
def read_pages(root: Path = ROOT) -> tuple[Page, ...]:
    """Return all pages."""
    return tuple(parse_page(path, (root / path).read_text(encoding="utf-8")) for path in page_paths(root))


def parse_page(path: str, text: str) -> Page:
    """Return the headings, links and code blocks of a page."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    headings = list(_headings(tokens))
    return Page(
        path=path,
        text=text,
        title=headings[0] if headings else path,
        anchors=frozenset((*_anchors(headings), *_ID.findall(text))),
        links=tuple(_links(path, tokens)),
        blocks=tuple(_blocks(path, tokens)),
    )


def _headings(tokens: Sequence[Token]) -> Iterator[str]:
    for token, following in pairwise(tokens):
        if token.type == "heading_open":
            yield "".join(child.content for child in following.children or () if child.type in {"text", "code_inline"})


def _anchors(headings: list[str]) -> Iterator[str]:
    """Return GitHub's anchors: lower case, without punctuation, hyphens for spaces, a number for each repetition."""
    seen: Counter[str] = Counter()
    for heading in headings:
        anchor = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        yield f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
        seen[anchor] += 1


def _links(page: str, tokens: Sequence[Token]) -> Iterator[Link]:
    line = 1
    for token in tokens:
        line = token.map[0] + 1 if token.map else line
        for child in token.children or ():
            target = child.attrGet("href") or child.attrGet("src")
            if target:
                yield Link(page, line, str(target))
            elif child.type == "html_inline":
                yield from (Link(page, line, source) for source in _SOURCE.findall(child.content))
        if token.type == "html_block":
            yield from (Link(page, line, source) for source in _SOURCE.findall(token.content))


def _blocks(page: str, tokens: Sequence[Token]) -> Iterator[Block]:
    previous: Token | None = None
    for token in tokens:
        if token.type == "fence" and token.map:
            marked = _MARK.search(previous.content.strip()) if previous and previous.type == "html_block" else None
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            yield Block(page, token.map[0] + 1, language, token.content, marked[1] if marked else "")
        elif token.type == "code_block" and token.map:
            yield Block(page, token.map[0] + 1, "indented", token.content)
        previous = token
