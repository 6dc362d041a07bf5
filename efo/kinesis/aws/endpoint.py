"""Finds the endpoint of Kinesis, its region and the authorities to trust, by the rules of botocore."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import botocore.config
import botocore.exceptions
import botocore.httpsession
import botocore.session
import botocore.utils
from botocore import UNSIGNED

from efo.checks import shown
from efo.errors import ConfigurationError
from efo.foreign_errors import reason_of


@dataclass(frozen=True)
class Endpoint:
    """Where Kinesis is.

    `scheme`: "https", or "http" without TLS. `host`, `port`: where to connect. `authority`: the host of requests as
    SigV4 signs it. `region`: for SigV4. `ca_file`: the certificate authorities to trust, in PEM format.
    """

    scheme: str
    host: str
    port: int
    authority: str
    region: str
    ca_file: str


def find_endpoint(
    *, region: str | None, endpoint_url: str | None, ca_file: str | None, profile: str | None
) -> Endpoint:
    """Return the endpoint for these arguments of `open_kinesis`, the environment and the AWS configuration.

    Raises ConfigurationError, and botocore's errors.
    """
    session = botocore.session.Session(profile=profile)
    region = region or session.get_config_variable("region")
    if region is None:
        raise botocore.exceptions.NoRegionError
    botocore.utils.validate_region_name(region)
    url = endpoint_url or _configured(session)
    if url is None or "fips" in region:  # botocore replaces regions such as fips-us-east-1
        url, region = _default(session, region, url)
    elif not (botocore.utils.is_valid_endpoint_url(url) or botocore.utils.is_valid_ipv6_endpoint_url(url)):
        raise ConfigurationError(f"Invalid endpoint: {shown(url)}")
    address = _address(url)
    return Endpoint(
        scheme=address.scheme,
        host=address.hostname or "",
        port=address.port or (443 if address.scheme == "https" else 80),
        authority=_authority(address),
        region=region,
        ca_file=ca_file or session.get_config_variable("ca_bundle") or botocore.httpsession.get_cert_path(True),
    )


def _configured(session: botocore.session.Session) -> str | None:
    """Return the endpoint that the environment sets: botocore prefers it to the configuration file's."""
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    return os.environ.get("AWS_ENDPOINT_URL_KINESIS") or os.environ.get("AWS_ENDPOINT_URL") or None


def _default(session: botocore.session.Session, region: str, url: str | None) -> tuple[str, str]:
    """Return the endpoint and the region that a client of botocore would use."""
    unsigned = botocore.config.Config(signature_version=UNSIGNED)  # credentials are not looked for
    client = session.create_client("kinesis", region_name=region, endpoint_url=url, config=unsigned)
    return client.meta.endpoint_url, client.meta.region_name


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
