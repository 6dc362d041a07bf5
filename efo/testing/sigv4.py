"""Checks the Signature Version 4 of a request to Kinesis (AWS: "Create a signed AWS API request").

Errors and reprs never contain secrets or session tokens.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from efo.testing.errors import FakeError

SERVICE: Final = "kinesis"
MAX_SKEW: Final = 300.0
"""Maximum difference of the client's clock, in seconds."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_FIELD: Final = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]+)")
_MUST_BE_SIGNED: Final = frozenset({"host", "x-amz-date"})


@dataclass(frozen=True, slots=True)
class Credential:
    """The secrets of an access key id. `expires_at`: when the session expires, seconds since the epoch."""

    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Authorization:
    key_id: str
    date: str
    region: str
    service: str
    signed_headers: tuple[str, ...]
    signature: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def verify(
    headers: Mapping[str, str], body: bytes, credentials: Mapping[str, Credential], region: str, now: float
) -> None:
    """Raise FakeError if this POST to `/` is not signed correctly.

    `headers`: by name in lower case; HTTP/2's `:authority` replaces `host`. `credentials`: by access key id.
    `region`: the expected region. `now`: seconds since the epoch. The errors: MissingAuthenticationTokenException,
    IncompleteSignatureException, UnrecognizedClientException, ExpiredTokenException, InvalidSignatureException.
    """
    headers = {"host": headers.get(":authority", "")} | dict(headers)
    authorization = _parse(headers)
    credential = credentials.get(authorization.key_id)
    if credential is None or not _equal(headers.get("x-amz-security-token", ""), credential.session_token or ""):
        raise FakeError("UnrecognizedClientException", "The security token included in the request is invalid.")
    if credential.expires_at is not None and now >= credential.expires_at:
        raise FakeError("ExpiredTokenException", "The security token included in the request is expired")
    _check_scope(authorization, region)
    _check_time(authorization, headers["x-amz-date"], now)
    if not _equal(_signature(authorization, credential.secret, headers, body), authorization.signature):
        raise _invalid(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method."
        )


def _parse(headers: Mapping[str, str]) -> _Authorization:
    text = headers.get("authorization")
    if not text:
        raise FakeError("MissingAuthenticationTokenException", "Missing Authentication Token")
    algorithm, _, rest = text.partition(" ")
    if algorithm != _ALGORITHM:
        raise _incomplete(f"Unsupported algorithm: expected {_ALGORITHM}.")
    fields = dict(_FIELD.findall(rest))
    missing = [name for name in ("Credential", "Signature", "SignedHeaders") if name not in fields]
    if missing:
        raise _incomplete(" ".join(f"Authorization header requires '{name}' parameter." for name in missing))
    if "x-amz-date" not in headers:
        raise _incomplete("Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header.")
    parts = fields["Credential"].split("/")
    if len(parts) != 5 or parts[4] != "aws4_request":  # noqa: PLR2004 - key id, date, region, service, terminator
        raise _incomplete("Credential must have exactly 5 slash-delimited elements and end with aws4_request.")
    signed = tuple(fields["SignedHeaders"].split(";"))
    unsigned = sorted(name for name in headers if name in _MUST_BE_SIGNED and name not in signed)
    if unsigned:
        raise _invalid(f"'{unsigned[0]}' must be a 'SignedHeader' in the AWS Authorization.")
    return _Authorization(parts[0], parts[1], parts[2], parts[3], signed, fields["Signature"])


def _check_scope(authorization: _Authorization, region: str) -> None:
    if authorization.region != region:
        raise _invalid(f"Credential should be scoped to a valid region, not '{authorization.region}'.")
    if authorization.service != SERVICE:
        raise _invalid(f"Credential should be scoped to correct service: '{SERVICE}'.")


def _check_time(authorization: _Authorization, date: str, now: float) -> None:
    try:
        at = datetime.strptime(date, _TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _incomplete(f"Date must be in ISO-8601 'basic format', not {date[:32]!r}.") from None
    if not date.startswith(authorization.date):
        raise _invalid(f"Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date: {date}.")
    bounds = (_iso(now - MAX_SKEW), _iso(now + MAX_SKEW))
    if at < now - MAX_SKEW:
        raise _invalid(f"Signature expired: {date} is now earlier than {bounds[0]} ({_iso(now)} - 5 min.)")
    if at > now + MAX_SKEW:
        raise _invalid(f"Signature not yet current: {date} is still later than {bounds[1]} ({_iso(now)} + 5 min.)")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(_TIME_FORMAT)


def _signature(authorization: _Authorization, secret: str, headers: Mapping[str, str], body: bytes) -> str:
    names = sorted(authorization.signed_headers)
    canonical = "\n".join(
        (
            "POST",
            "/",
            "",
            *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in names),
            "",
            ";".join(names),
            sha256(body).hexdigest(),
        )
    )
    digest = sha256(canonical.encode()).hexdigest()
    to_sign = "\n".join((_ALGORITHM, headers["x-amz-date"], authorization.scope, digest))
    key = f"AWS4{secret}".encode()
    for part in (*authorization.scope.split("/"), to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _incomplete(message: str) -> FakeError:
    return FakeError("IncompleteSignatureException", message)


def _invalid(message: str) -> FakeError:
    return FakeError("InvalidSignatureException", message)
