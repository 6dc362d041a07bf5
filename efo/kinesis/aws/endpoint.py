"""Finds the endpoint of Kinesis, its region, its proxy and the authorities to trust, by the rules of botocore.

It is the host of the region, for all calls. botocore would call hosts of the account for those that name the stream or
the consumer by its ARN (ACCOUNT.control-kinesis.REGION.amazonaws.com, ACCOUNT.data-kinesis...), and for all if it knows
the account; the host of the region serves them all.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Unpack
from urllib.parse import SplitResult, urlsplit

import botocore.config
import botocore.exceptions
import botocore.session
import botocore.utils
from botocore import UNSIGNED

from efo.aws.egress import find_authorities
from efo.checks import shown
from efo.errors import ConfigurationError
from efo.kinesis.client import StreamLocation
from efo.proxy import Proxy, find_proxy
from efo.third_party_errors import reason_of

_REGION: Final = re.compile(r"[a-z]+(-[a-z]+)+-\d+(-fips)?")
"""The form of all regions, such as us-gov-west-1. botocore also takes fips-us-east-1 and us-east-1-fips."""


@dataclass(frozen=True)
class Endpoint:
    """Where Kinesis is.

    `scheme`: "https", or "http" without TLS. `host`, `port`: where to connect. `authority`: the host of requests as
    SigV4 signs it. `region`: for SigV4. `ca_file`: the certificate authorities to trust, in PEM format; `ca_source`:
    the setting or the variable that names it. `proxy`: through which the host is reached, None if directly.
    """

    scheme: str
    host: str
    port: int
    authority: str
    region: str
    ca_file: str
    ca_source: str = ""
    proxy: Proxy | None = None

    @property
    def url(self) -> str:
        """Its URL, without a path."""
        return f"{self.scheme}://{self.authority}"


def find_endpoint(**where: Unpack[StreamLocation]) -> Endpoint:
    """Return the endpoint for these arguments of `open_kinesis`, the environment and the AWS configuration.

    Raises ConfigurationError, and botocore's errors.
    """
    session = botocore.session.Session(profile=where.get("profile"))
    endpoint_url = where.get("endpoint_url")
    region = where.get("region") or session.get_config_variable("region")
    if region is None:
        raise botocore.exceptions.NoRegionError
    if (endpoint_url or _configured(session)) is None and not _REGION.fullmatch(region):
        raise ConfigurationError(
            f"region={shown(region)} is no region of AWS: write its code, such as 'eu-central-1', without a zone; for"
            " another service of Kinesis, give endpoint_url too"
        )
    botocore.utils.validate_region_name(region)
    authorities = find_authorities(session, where.get("ca_file"))
    url = endpoint_url or _configured(session)
    if url is None or "fips" in region:  # botocore replaces regions such as fips-us-east-1
        url, region = _default(session, region, url)
    elif not (botocore.utils.is_valid_endpoint_url(url) or botocore.utils.is_valid_ipv6_endpoint_url(url)):
        raise ConfigurationError(
            f"Invalid endpoint: {shown(url)}: expected https://HOST[:PORT], or http:// for one without TLS"
        )
    address = _address(url)
    return Endpoint(
        scheme=address.scheme,
        host=address.hostname or "",
        port=address.port or (443 if address.scheme == "https" else 80),
        authority=_authority(address),
        region=region,
        ca_file=authorities.path,
        ca_source=authorities.source,
        proxy=find_proxy(f"{address.scheme}://{address.netloc}", where.get("proxy_url")),
    )


def _configured(session: botocore.session.Session) -> str | None:
    """Return the endpoint that the environment sets: botocore prefers it to the configuration file's."""
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    return os.environ.get("AWS_ENDPOINT_URL_KINESIS") or os.environ.get("AWS_ENDPOINT_URL") or None


def _default(session: botocore.session.Session, region: str, url: str | None) -> tuple[str, str]:
    """Return the endpoint and the region that a client of botocore would use for a stream's name, by its newest rules.

    They are those of FIPS and dual-stack endpoints too, and of an endpoint in the configuration file.
    """
    unsigned = botocore.config.Config(signature_version=UNSIGNED, account_id_endpoint_mode="disabled")
    client = session.create_client("kinesis", region_name=region, endpoint_url=url, config=unsigned)
    called: list[str] = []

    def note(params: dict[str, Any], **_: object) -> tuple[SimpleNamespace, dict[str, Any]]:
        called.append(params["url"])
        return SimpleNamespace(status_code=200), {}  # a response, so that nothing is sent

    client.meta.events.register("before-call.kinesis.ListShards", note)
    client.list_shards(StreamName="any")
    return called[0].removesuffix("/"), client.meta.region_name


def _address(url: str) -> SplitResult:
    """Return the parts of an endpoint's URL. botocore does not check the port."""
    address = urlsplit(url)
    try:
        address.port  # noqa: B018 - a property that raises
    except ValueError as error:
        raise ConfigurationError(f"{shown(url)} is not an endpoint: {reason_of(error)}") from None
    return address


def _authority(address: SplitResult) -> str:
    """Return the host of requests as SigV4 signs it: in lower case, without the scheme's default port."""
    host = (address.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    default = {"https": 443, "http": 80}.get(address.scheme)
    return host if address.port in (None, default) else f"{host}:{address.port}"
