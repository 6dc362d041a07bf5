"""The tokens of a service, and who has them. Pure."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple

MIN_TOKEN: Final = 16
"""Characters of a token: fewer could be guessed."""
MAX_TOKENS: Final = 2
"""Of one kind: the one before and the new one, while clients change."""
_NAMED: Final = re.compile(rf"([A-Za-z][A-Za-z0-9_.-]{{0,31}}):(\S{{{MIN_TOKEN},}})")


class Token(NamedTuple):
    """A token. `name`: of who has it, for the log. `may_act`: whether it is for actions too."""

    name: str
    secret: str
    may_act: bool = True


def tokens_of(text: str, *, may_act: bool = True) -> tuple[Token, ...]:
    """Return the tokens of a setting: TOKEN or NAME:TOKEN, separated by blanks.

    One without a name is named by the beginning of its hash, so that two can be distinguished and neither is shown.
    """
    return tuple(_token(part, may_act) for part in text.split())


def _token(text: str, may_act: bool) -> Token:  # noqa: FBT001 - of `tokens_of`
    if found := _NAMED.fullmatch(text):
        return Token(found[1], found[2], may_act)
    digest = sha256(text.encode(errors="replace")).hexdigest()[:8]
    return Token(f"token {digest}", text, may_act)
