"""Opens a client of one stream on AWS, or on an endpoint that behaves like it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session
import botocore.httpsession
import trio

from efo.arn import parse_stream
from efo.errors import ConfigurationError
from efo.kinesis.aws.connector import Connector
from efo.kinesis.aws.control_plane import AwsControlPlane
from efo.kinesis.aws.errors import translated
from efo.kinesis.aws.signer import Signer
from efo.kinesis.client import KinesisClient
from efo.tls import client_tls_context


@asynccontextmanager
async def open_kinesis(
    stream: str,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    ca_file: str | None = None,
    profile: str | None = None,
) -> AsyncIterator[KinesisClient]:
    """Open a client of one stream, by its name or its ARN.

    Credentials come from botocore's chain (environment, profile, container, instance). `region`: by default the ARN's,
    then AWS_REGION, then botocore's. `endpoint_url`: another endpoint than AWS's, `https://` or, without TLS,
    `http://`. `ca_file`: the certificate authorities to trust, in PEM format; by default AWS_CA_BUNDLE, then
    botocore's.
    `profile`: a profile of the AWS configuration. Raises ConfigurationError.

    Kinesis is called without a proxy, even if the environment names one. SubscribeToShard cannot pass through a proxy,
    and the control plane must describe the same endpoint. The services that provide credentials are called as botocore
    does.
    """
    name, arn_region = parse_stream(stream)
    # botocore itself reads AWS_DEFAULT_REGION only; the containers that AWS starts set AWS_REGION.
    region = region or arn_region or os.environ.get("AWS_REGION")
    with translated():
        session = aiobotocore.session.AioSession(profile=profile)
        bundle = ca_file or session.get_config_variable("ca_bundle")
        if bundle is not None:
            client_tls_context(bundle)  # botocore would raise exceptions of ssl
        # Set on the session too: its clients, which fetch credentials, must run on trio and not on asyncio.
        session.set_default_client_config(_config())
        client_context = session.create_client(
            "kinesis", region_name=region, endpoint_url=endpoint_url, verify=ca_file, config=_config(proxies={})
        )
        client = await client_context.__aenter__()
    try:
        control_plane = AwsControlPlane(client, name, stream if arn_region else None)
        address = _address(client.meta.endpoint_url)
        host = address.hostname or ""
        port = address.port or (443 if address.scheme == "https" else 80)
        trusted = bundle or botocore.httpsession.get_cert_path(True)
        connector = Connector(host, port, ca_file=trusted if address.scheme == "https" else None)
        authority = _authority(address)
        signer = Signer(session, f"{address.scheme}://{authority}/", client.meta.region_name)
        yield KinesisClient(
            stream=name,
            control_plane=control_plane,
            connect=connector.connect,
            sign=signer.sign,
            authority=authority,
            scheme=address.scheme,
            clock=time.time,
            service_time=control_plane.service_time,
        )
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
            await client_context.__aexit__(None, None, None)


def _config(**options: Any) -> Any:
    return aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=10,
        read_timeout=20,
        retries={"mode": "standard", "total_max_attempts": 5},
        **options,
    )


def _address(url: str) -> SplitResult:
    """Return the parts of an endpoint's URL. botocore does not check the port."""
    address = urlsplit(url)
    try:
        address.port  # noqa: B018 - a property that raises
    except ValueError as error:
        raise ConfigurationError(f"{url} is not an endpoint: {error}") from error
    return address


def _authority(address: SplitResult) -> str:
    """Return the host of requests as SigV4 signs it: in lower case, without the scheme's default port."""
    host = (address.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    default = {"https": 443, "http": 80}.get(address.scheme)
    return host if address.port in (None, default) else f"{host}:{address.port}"
