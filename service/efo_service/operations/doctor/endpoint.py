"""Checks of the way to the service: credentials, region, DNS, TCP, TLS, HTTP/2 and the clock."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import trio

from efo.aws.role import AssumedRole
from efo.errors import TransportError
from efo.exception_groups import collapse_groups
from efo.kinesis.aws.client import credential_provider, endpoint_of
from efo.kinesis.aws.connector import Connector
from efo.kinesis.aws.endpoint import Endpoint
from efo.kinesis.client import Connect, StreamLocation
from efo.kinesis.connection_pool import ConnectionPool
from efo.proxy import find_proxy
from efo.third_party_errors import reason_of
from efo.tls import TlsStream
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.running import Check, Outcome, failed, not_tested, passed

MAX_SKEW: Final = 300.0
"""How far a request's time may be from the service's, in seconds (AWS: SigV4, InvalidSignatureException)."""
SKEW_TO_NOTE: Final = 60.0
NEEDED: Final = ("credentials", "http2")
"""The checks without which no call of the service can succeed.

A certificate that expires soon is still valid. With a wrong clock, efo signs by the service's.
"""
MIN_VALIDITY: Final = 86_400.0
"""Seconds for which a certificate must still be valid: it is renewed long before, or has been forgotten."""
_DAY: Final = 86_400

_PROVIDERS: Final = {
    "env": "the environment",
    "shared-credentials-file": "the shared credentials file",
    "config-file": "the AWS configuration file",
    "custom-process": "the process that the AWS configuration names",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "an assumed role, by web identity",
    "sso": "IAM Identity Center (SSO)",
    "login": "`aws login`",
    "container-role": "the role of the container",
    "iam-role": "the role of the instance",
}
"""Where credentials come from, by botocore's names of the providers of its chain."""

_SERVICES: Final = {
    "assume-role": "sts.{}.amazonaws.com",
    "assume-role-with-web-identity": "sts.{}.amazonaws.com",
    "sso": "portal.sso.{}.amazonaws.com",
    "login": "{}.signin.aws.amazon.com",
}
"""The hosts that these providers ask, by region."""
_NETWORK: Final = "check the network, firewalls, and [kinesis] endpoint_url"


@dataclass(frozen=True, slots=True)
class CheckedStream:
    """The stream, and where it is, as [kinesis] says. `region_source`: what sets the region, for the report."""

    stream: str
    where: StreamLocation
    region_source: str
    role: AssumedRole | None = None


def endpoint_checks(stream: CheckedStream, clock: Callable[[], float] = time.time) -> list[Check]:
    """Return the checks of the way to the service, in order."""
    way = _Way(stream, clock)
    return [
        Check("region", way.region, 'set [kinesis] region = "REGION", or AWS_REGION'),
        Check(
            "credentials",
            way.credentials,
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or [kinesis] profile, or give the container or the"
            " instance a role",
            ("region",),
        ),
        Check("dns", way.dns, "check the region, the resolver of this host, and [kinesis] endpoint_url", ("region",)),
        Check("tcp", way.tcp, _NETWORK, ("dns",)),
        Check("tls", way.tls, f"{_NETWORK} and ca_file", ("tcp",)),
        Check("certificate", way.certificate, "renew the certificate on the server", ("tls",)),
        Check("http2", way.http2, f"{_NETWORK}, and proxies in between", ("tls",)),
        Check("clock", way.clock, "synchronize this host's clock (NTP)", ("http2",)),
    ]


class _Way:
    """The checks. Each leaves to the next ones what they need: they run only after it has passed."""

    def __init__(self, stream: CheckedStream, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._endpoint: Endpoint
        self._connector: Connector
        self._certificate: Mapping[str, Any] = {}
        self._skew: float | None = None

    @property
    def _target(self) -> tuple[str, int]:
        """The host and the port that are connected to."""
        proxy = self._endpoint.proxy
        return (self._endpoint.host, self._endpoint.port) if proxy is None else (proxy.host, proxy.port)

    async def region(self) -> Outcome:
        """Find the region and the endpoint."""
        find = partial(endpoint_of, self._stream.stream, **self._stream.where)
        self._endpoint = await trio.to_thread.run_sync(find, abandon_on_cancel=True)
        endpoint = self._endpoint
        way = "" if endpoint.proxy is None else f", through {endpoint.proxy}"
        return passed(f"{endpoint.region}, from {self._stream.region_source}; the endpoint is {endpoint.url}{way}")

    async def credentials(self) -> Outcome:
        """Look for credentials as the AWS chain does."""
        where, region = self._stream.where, self._endpoint.region
        proxy_url = where.get("proxy_url")
        provider = await credential_provider(where.get("profile"), region, self._stream.role, proxy_url)
        service = _SERVICES.get(provider)
        way = "" if service is None else through(f"https://{service.format(region)}", proxy_url)
        return passed(f"found in {_PROVIDERS.get(provider, provider)}{way}")

    async def dns(self) -> Outcome:
        """Resolve the name that is connected to: of the endpoint, or of its proxy, which resolves the endpoint's."""
        host, port = self._target
        try:
            found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        except OSError as error:
            raise TransportError(f"cannot resolve {host}: {error.strerror or error}") from error
        addresses = dict.fromkeys(str(address[0]) for *_, address in found)
        return passed(f"{host} is {', '.join(addresses)}")

    async def tcp(self) -> Outcome:
        """Connect to the endpoint, or to its proxy."""
        host, port = self._target
        try:
            stream = await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise TransportError(f"cannot connect to {host} port {port}: {reason_of(error)}") from error
        await stream.aclose()
        by = "" if self._endpoint.proxy is None else ", which is the proxy"
        return passed(f"connected to {host} port {port}{by}")

    async def tls(self) -> Outcome:
        """Agree on TLS and, by ALPN, on HTTP/2, with the authorities that the consumer trusts."""
        endpoint = self._endpoint
        self._connector = Connector.of(endpoint)
        if endpoint.scheme == "http":
            return not_tested("the endpoint is http://, without TLS")
        stream = await self._connector.connect()
        assert isinstance(stream, TlsStream)  # noqa: S101 - `Connector` with a CA file
        self._certificate = stream.certificate
        await trio.aclose_forcefully(stream)
        return passed(f"trusted by {endpoint.ca_file}, and ALPN chose HTTP/2")

    async def certificate(self) -> Outcome:
        """Look at the expiry of the certificate."""
        if not self._certificate:
            return not_tested("the endpoint is http://, without TLS")
        return judge_certificate(ssl.cert_time_to_seconds(self._certificate["notAfter"]), self._clock())

    async def http2(self) -> Outcome:
        """Make a request over HTTP/2 that is not signed and asks for nothing, and note the service's time."""
        endpoint = self._endpoint
        before = self._clock()
        status, headers = await get(self._connector.connect, endpoint.scheme, endpoint.authority)
        self._skew = skew_of(headers, (before + self._clock()) / 2)
        return passed(f"{endpoint.authority} responds (status {status} to a GET)")

    async def clock(self) -> Outcome:
        """Compare this host's clock with the service's."""
        return judge_skew(self._skew)


def through(url: str, proxy_url: str | None) -> str:
    """Return by which proxy a URL is called, to append to what was found; "" if by none. Raises ConfigurationError."""
    proxy = find_proxy(url, proxy_url)
    return "" if proxy is None else f"; {urlsplit(url).hostname} is called through {proxy}"


async def get(connect: Connect, scheme: str, authority: str) -> tuple[int, Mapping[str, str]]:
    """Send `GET /` over HTTP/2; return the status and the headers of the response. Raises TransportError."""
    headers = [(":method", "GET"), (":scheme", scheme), (":authority", authority), (":path", "/")]
    with collapse_groups():
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(connect, address=authority)
            await nursery.start(pool.run)
            response = await pool.open(headers, b"")
            try:
                status = await response.response()
            finally:
                response.close()
            nursery.cancel_scope.cancel()
    return status, response.headers


# --- what it means: pure ---------------------------------------------------------------------------------------


def skew_of(headers: Mapping[str, str], now: float) -> float | None:
    """Return how far this host's clock is ahead of the response's `Date`, in seconds; None without a valid date.

    `now`: this host's time, in the middle of the call. `Date` has whole seconds: it is half a second old on average.
    """
    try:
        date = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except ValueError:
        return None
    return now - (date + 0.5)


def judge_skew(skew: float | None) -> Outcome:
    """Return what the difference to the service's clock means. SigV4 refuses requests that are 5 minutes off."""
    if skew is None:
        return not_tested("the response has no Date header")
    seconds = round(abs(skew))
    found = f"{seconds} s {'ahead of' if skew > 0 else 'behind'} the service" if seconds else "that of the service"
    if abs(skew) >= MAX_SKEW:
        remedy = (
            "synchronize this host's clock (NTP): efo signs by the service's, but certificates, Kafka with IAM and"
            " object stores depend on this one"
        )
        return failed(f"this host's clock is {found}", remedy, Exit.CONFIGURATION)
    note = "; synchronize it (NTP): from 5 minutes on, services refuse its signatures" * (abs(skew) >= SKEW_TO_NOTE)
    return passed(f"this host's clock is {found}{note}")


def judge_certificate(expires_at: float, now: float) -> Outcome:
    """Return what the expiry of the endpoint's certificate means. Times in seconds since the epoch."""
    left = expires_at - now
    date = datetime.fromtimestamp(expires_at, UTC).isoformat(timespec="seconds")
    if left < MIN_VALIDITY:
        return failed(f"expires at {date}, in {left / 3600:.0f} hours", "renew the certificate on the server")
    return passed(f"valid until {date}, for {left // _DAY:.0f} days")
