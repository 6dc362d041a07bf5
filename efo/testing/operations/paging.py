"""Pages and the tokens that lead to the next one. A token is good for 300 s (AWS: ListShards, NextToken)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from efo.testing.errors import FakeError, invalid_argument, validation
from efo.testing.operations.requests import ShardFilter

TOKEN_LIFE: Final = 300.0

T = TypeVar("T")


class Token(msgspec.Struct, frozen=True):
    """Where the next page begins: of what, after which key, and since when the token is there."""

    listing: str
    after: str
    issued_at: float
    stream: str | None = None
    shard_filter: ShardFilter | None = None


def encode_token(token: Token) -> str:
    """Return the token as the opaque text that a client sends back."""
    return urlsafe_b64encode(msgspec.json.encode(token)).decode()


def decode_token(text: str, listing: str, now: float) -> Token:
    """Return what the text says. Raises InvalidArgumentException, ExpiredNextTokenException."""
    try:
        token = msgspec.json.decode(urlsafe_b64decode(text.encode()), type=Token)
    except (ValueError, msgspec.DecodeError):
        raise invalid_argument(f"NextToken {text[:100]!r} is invalid") from None
    if token.listing != listing:
        raise invalid_argument(f"NextToken is one of {token.listing}, not of {listing}")
    if now - token.issued_at > TOKEN_LIFE:
        raise FakeError("ExpiredNextTokenException", f"NextToken is older than {TOKEN_LIFE:.0f} seconds")
    return token


def page(items: Sequence[T], key: Callable[[T], str], after: str | None, limit: int, most: int) -> tuple[list[T], bool]:
    """Return up to `limit`, and never more than `most`, of the sorted items past `after`; and if more follow.

    Raises ValidationException for a limit below 1.
    """
    if limit < 1:
        raise validation(f"A page of {limit}: the limit must be at least 1")
    rest = [item for item in items if after is None or key(item) > after]
    size = min(limit, most)
    return rest[:size], len(rest) > size
