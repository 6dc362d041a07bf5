"""The URL of a log on an object store, and the options of the store. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from efo.errors import ConfigurationError

Scheme = Literal["s3", "gs", "az"]
Option = str | int | float | bool

_SCHEMES: Final[Mapping[str, Scheme]] = {"s3": "s3", "gs": "gs", "az": "az"}
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<bucket>[^/?#]*)(?:/(?P<prefix>[^?#]*))?")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]*")
"""One part of a prefix. Stores would take more; these are taken alike by all, and never need an escape."""
_LOCAL: Final = frozenset({"", "file"})

MAX_SECONDS: Final = 3600
"""The longest time for one request. A cancellation waits for it."""

_COMMON: Final[Mapping[str, type]] = {"allow_http": bool, "timeout_seconds": float, "ca_file": str, "proxy_url": str}
OPTIONS: Final[Mapping[Scheme, Mapping[str, type]]] = {
    "s3": {
        **_COMMON,
        "endpoint": str,
        "region": str,
        "profile": str,
        "virtual_hosted_style_request": bool,
        "server_side_encryption": str,
        "sse_kms_key_id": str,
        "sse_bucket_key_enabled": bool,
        "request_payer": bool,
        "checksum": bool,
    },
    "gs": {**_COMMON, "endpoint": str},
    "az": {**_COMMON, "endpoint": str, "account_name": str, "use_emulator": bool},
}
"""The options of each kind of store, and their types. Credentials are none: they come from where the providers' own
libraries look for them, so that no file of settings has a secret."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where a log is: `scheme://bucket/prefix`. `prefix` has no slash at its ends, and may be empty.

    `options`: of the store, as in [relay] store_options.
    """

    scheme: Scheme
    bucket: str
    prefix: str
    options: Mapping[str, Option] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def __truediv__(self, name: str) -> StoreUrl:
        """Return the URL of a name below this one, for messages."""
        prefix = f"{self.prefix}/{name}" if self.prefix else name
        return StoreUrl(self.scheme, self.bucket, prefix, self.options)


def is_url(text: str) -> bool:
    """Return whether a text is a URL of any scheme but file, and so no path."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) is not None and scheme not in _LOCAL


def parse_url(text: str, options: Mapping[str, Option] | None = None) -> StoreUrl:
    """Return the URL of a log. Raises ConfigurationError: what is wrong, and what is expected."""
    match = _URL.fullmatch(text.strip())
    expected = "expected s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
    scheme = _SCHEMES.get(match["scheme"].lower()) if match else None
    if match is None or scheme is None:
        hadoop = "; s3a:// and s3n:// are Hadoop's names of s3://" if re.match("s3[an]:", text.strip().lower()) else ""
        raise ConfigurationError(f"{_shown(text)} is no URL of a log: {expected}, or a directory{hadoop}")
    bucket, prefix = match["bucket"], (match["prefix"] or "").strip("/")
    if _BUCKET.fullmatch(bucket) is None:
        raise ConfigurationError(f"{_shown(text)} has no valid bucket: {expected}, without credentials")
    for part in prefix.split("/") if prefix else ():
        if _PART.fullmatch(part) is None:
            shown = "a part" if "@" in text else repr(part[:60])
            raise ConfigurationError(
                f"{_shown(text)}: {shown} is not valid in a prefix: use letters, digits, '.', '_', '=' and '-', not"
                " starting with '.', and one '/' between parts"
            )
    return StoreUrl(scheme, bucket, prefix, check_options(scheme, options or {}))


def _shown(text: str) -> str:
    """Return the text without what could be a password before an @, or a signature in a query."""
    return repr(re.sub(r"[?#].*", "?...", re.sub(r"//.*@", "//...@", text, flags=re.DOTALL), flags=re.DOTALL)[:200])


def check_options(scheme: Scheme, options: Mapping[str, Option]) -> Mapping[str, Option]:
    """Return the options. Raises ConfigurationError for one that this kind of store does not have."""
    known = OPTIONS[scheme]
    for name, value in options.items():
        if name not in known:
            raise ConfigurationError(
                f"store_options: {scheme}:// has no option {name[:60]!r}; it has: {', '.join(sorted(known))}."
                " Credentials come from the environment (docs/log.md)"
            )
        expected = known[name]
        fits = (
            isinstance(value, (int, float)) and not isinstance(value, bool)
            if expected is float
            else type(value) is expected
        )
        if not fits or (expected is float and not 0 < float(value) <= MAX_SECONDS):
            number = f"a number above 0, at most {MAX_SECONDS}"
            wanted = {str: "a text", bool: "true or false", float: number}[expected]
            raise ConfigurationError(f"store_options: {name} is {wanted}")
    if (endpoint := options.get("endpoint")) is not None:
        _check_endpoint(str(endpoint), allow_http=bool(options.get("allow_http")))
    return dict(options)


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    """Raise ConfigurationError unless it is a URL that the client takes. The message has nothing of the endpoint."""
    where = "store_options: endpoint"
    if "@" in endpoint:
        raise ConfigurationError(f"{where} has an '@': credentials come from the environment, not from a URL")
    try:
        url = urlsplit(endpoint)
        is_url = bool(url.scheme in {"http", "https"} and url.hostname) and url.port != 0
    except ValueError:  # a port that is no number, or half of a bracket
        is_url = False
    if not is_url or re.search(r"[\s?#]", endpoint):
        raise ConfigurationError(f"{where} is a URL such as https://store.example:9000")
    if url.scheme == "http" and not allow_http:
        raise ConfigurationError(f"{where} is without TLS: use https://, or set allow_http = true")


def log_root(text: str, options: Mapping[str, Option] | None = None) -> Path | StoreUrl:
    """Return the root of a log: a directory of this machine, or a URL. Raises ConfigurationError."""
    if is_url(text):
        return parse_url(text, options)
    if options:
        raise ConfigurationError("store_options are for a log on an object store (s3://, gs://, az://): remove them")
    return Path(re.sub(r"\Afile:(//)?(?=/|\Z)", "", text))  # Spark's tables write file:/path
