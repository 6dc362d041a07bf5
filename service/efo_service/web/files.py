"""The files of the page, read from the package at the start and served from memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    """A file. `etag`: of its content."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files of the page by name."""
    found = {}
    for file in files("efo_service.web").joinpath("page").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            content = file.read_bytes()
            found[file.name] = PageFile(content, _TYPES[kind], f'"{sha256(content).hexdigest()[:32]}"')
    return found


def respond(request: Request, file: PageFile) -> Response:
    """Return the file, or 304 if the browser has it. Browsers ask each time, so a new release is seen at once."""
    headers = {"etag": file.etag, "cache-control": "no-cache"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
