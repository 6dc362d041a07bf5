"""Who may see the page and act on it: tokens, wrong ones within limits, and the decision. Pure.

- Probes and metrics are open: orchestrators and scrapers have no token.
- Reading needs the token, a verified client certificate, or a request of this very machine: from 127.0.0.1 or ::1, to a
  loopback name, and through no proxy. The name keeps pages of other sites out, which DNS rebinding lets ask; what
  browsers say of the asking page keeps out those that ask 127.0.0.1 itself.
- Acting needs the token, always, and not one that is for reading alone.
"""

from __future__ import annotations

import hmac
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Literal, NamedTuple

Decision = Literal["allowed", "token_needed", "read_only", "closed", "foreign_site"]
"""token_needed: the request may be repeated with the token. read_only: its token may not act. closed: no
token is configured, so nobody is allowed. foreign_site: a page of another site made a browser send it."""

SESSION_SECONDS: Final = 12 * 3600
_DIRECT: Final = frozenset({
    "accept", "accept-charset", "accept-encoding", "accept-language", "authorization", "cache-control", "connection",
    "content-length", "content-type", "cookie", "dnt", "expect", "host", "http2-settings", "if-modified-since",
    "if-none-match", "keep-alive", "last-event-id", "origin", "pragma", "priority", "range", "referer", "save-data",
    "te", "transfer-encoding", "upgrade", "upgrade-insecure-requests", "user-agent",
})  # fmt: skip
"""The fields that browsers and other clients send by themselves, beside those that begin with sec-, which are a
browser's own. Proxies and meshes add others, each its own: a request with any of these may be passed on for somebody. A
mesh delivers it from a loopback address, with the Host header of its sender."""
_OWN: Final = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
"""From where programs of this machine connect to it. Istio delivers TCP from 127.0.0.6."""
_SAME_SITE: Final = {"", "none", "same-origin"}
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([0-9a-z.]+))(?::[0-9]{1,5})?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request says about its sender. `headers`: names in lower case. `cookie`: of the session, if there is one.

    `address`: of its connection; None if it has none. `has_certificate`: whether TLS verified a client certificate.
    `http_version`: proxies that add no field, such as nginx, often speak HTTP/1.0 to this service; no client does.
    """

    address: str | None
    headers: Mapping[str, str]
    cookie: str | None = None
    scheme: str = "http"
    has_certificate: bool = False
    http_version: str = "1.1"

    @property
    def is_local(self) -> bool:
        """Whether it is a request of this machine, to this machine by name, and through no proxy."""
        if self.address not in _OWN or self.http_version != "1.1":
            return False
        if not all(name in _DIRECT or name.startswith("sec-") for name in self.headers):
            return False
        return is_loopback(self.headers.get("host", ""))

    @property
    def may_be_shown(self) -> bool:
        """Whether no page of another site gets the response. A link on one leads here, which shows the page itself."""
        is_visit = self.headers.get("sec-fetch-mode") == "navigate" and self.headers.get("sec-fetch-dest") == "document"
        return self.is_same_site or (is_visit and "origin" not in self.headers)

    @property
    def is_same_site(self) -> bool:
        """Whether no page of another site sent it. Programs other than browsers send neither header."""
        host = self.headers.get("host", "")
        # A proxy may end HTTPS before this service: then the browser has an origin of HTTPS. Never the reverse.
        own = {f"{self.scheme}://{host}", f"https://{host}"}
        return self.headers.get("origin", f"{self.scheme}://{host}") in own and self._fetch_site in _SAME_SITE

    @property
    def uses_https(self) -> bool:
        """Whether the sender uses HTTPS, with this service or with a proxy before it."""
        return self.scheme == "https" or self.headers.get("origin", "").startswith("https://")

    @property
    def _fetch_site(self) -> str:
        return self.headers.get("sec-fetch-site", "")


class Access:
    """Decides for a service with these tokens; none: none is configured."""

    def __init__(self, *tokens: Token | str) -> None:
        self._tokens = tuple(token if isinstance(token, Token) else Token("token", token) for token in tokens)

    @property
    def has_token(self) -> bool:
        """Whether a token is configured."""
        return bool(self._tokens)

    def find(self, text: str) -> Token | None:
        """Return the token that this is; None if it is none. Takes the same time for any text of its length."""
        given = text.encode(errors="replace")
        found = [token for token in self._tokens if hmac.compare_digest(given, token.secret.encode(errors="replace"))]
        return found[0] if found else None

    def session(self, token: Token, now: float) -> str:
        """Return the cookie of a new session. It contains no secret: a signature that the token has made."""
        expires = str(int(now) + SESSION_SECONDS)
        return f"{expires}.{_signature(token, expires)}"

    def may_read(self, caller: Caller, now: float) -> Decision:
        """Return whether the request may read status, map and events. `now`: seconds since the epoch."""
        if self.holder(caller, now) or ((caller.has_certificate or caller.is_local) and caller.may_be_shown):
            return "allowed"
        return "token_needed" if self.has_token else "closed"

    def may_act(self, caller: Caller, now: float) -> Decision:
        """Return whether the request may change something."""
        if not caller.is_same_site:
            return "foreign_site"
        if (token := self.holder(caller, now)) is not None:
            return "allowed" if token.may_act else "read_only"
        return "token_needed" if self.has_token else "closed"

    def holder(self, caller: Caller, now: float) -> Token | None:
        """Return the token that the request shows, or that its session was made with."""
        kind, _, text = caller.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and (token := self.find(text.strip())) is not None:
            return token
        return None if caller.cookie is None else self._of_session(caller.cookie, now)

    def _of_session(self, cookie: str, now: float) -> Token | None:
        expires, _, signature = cookie.partition(".")
        if not (expires.isascii() and expires.isdigit() and len(expires) < 12 and now < int(expires)):  # noqa: PLR2004
            return None
        given = signature.encode(errors="replace")
        found = [token for token in self._tokens if hmac.compare_digest(given, _signature(token, expires).encode())]
        return found[0] if found else None


def _signature(token: Token, expires: str) -> str:
    return hmac.new(token.secret.encode(errors="replace"), f"efo session {expires}".encode(), sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Return whether a Host header names this machine alone: localhost, or a loopback address."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    in_brackets, name = found.groups()
    if name is not None and name.lower() == "localhost":
        return True
    try:
        address = IPv4Address(name) if in_brackets is None else IPv6Address(in_brackets)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


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


ALLOWED: Final = 10
"""Failed attempts of an address in a minute. A token of 16 characters cannot be guessed at this pace."""
_SECONDS: Final = 60.0
_MAX_ADDRESSES: Final = 1000


class FailedAttempts:
    """Counts the failed attempts of each address. It keeps a thousand addresses, and forgets the oldest."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def retry_after(self, address: str | None, now: float) -> float | None:
        """Return for how many seconds the address has to wait; None if it may try. `now`: monotonic seconds."""
        recent = [at for at in self._failures.get(network_of(address), ()) if at > now - _SECONDS]
        return None if len(recent) < ALLOWED else recent[-ALLOWED] + _SECONDS - now

    def failed(self, address: str | None, now: float) -> None:
        """Count a failed attempt."""
        key = network_of(address)
        recent = [at for at in self._failures.pop(key, ()) if at > now - _SECONDS]
        self._failures[key] = [*recent, now][-ALLOWED:]
        while len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)


def network_of(address: str | None) -> str:
    """Return who a client is: the address; of IPv6 the 64 bits of its network, since one client has all of that."""
    try:
        parsed = ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    return str(parsed) if not isinstance(parsed, IPv6Address) else str(IPv6Address(int(parsed) >> 64 << 64))
