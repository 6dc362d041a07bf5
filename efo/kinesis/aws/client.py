"""Opens a client of one stream on AWS, or on an endpoint that behaves like it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Unpack

import botocore.awsrequest

from efo.arn import parse_stream
from efo.aws.clock import ClockedSigV4, ServiceClock
from efo.aws.credentials import CredentialSource, Refusals
from efo.aws.role import AssumedRole
from efo.aws.variables import check_variables
from efo.checks import shown
from efo.errors import ConfigurationError
from efo.event_loops import require_trio
from efo.exception_groups import collapse_groups
from efo.kinesis.aws.connector import Connector
from efo.kinesis.aws.control_plane import AwsControlPlane, open_aiobotocore
from efo.kinesis.aws.endpoint import Endpoint, find_endpoint
from efo.kinesis.aws.errors import translated
from efo.kinesis.client import KinesisClient, StreamLocation
from efo.kinesis.connection_pool import ConnectionPool
from efo.kinesis.service_call import ServiceCaller
from efo.shielded import running


def endpoint_of(stream: str, **where: Unpack[StreamLocation]) -> Endpoint:
    """Return where `open_kinesis` finds a stream. Raises ConfigurationError."""
    check_variables()
    # botocore itself reads AWS_DEFAULT_REGION only; the containers that AWS starts set AWS_REGION.
    where["region"] = where.get("region") or parse_stream(stream)[1] or os.environ.get("AWS_REGION")
    with translated():
        return find_endpoint(**where)


async def credential_provider(
    profile: str | None, region: str, role: AssumedRole | None = None, proxy_url: str | None = None
) -> str:
    """Return which provider of botocore's chain has credentials, by botocore's name for it, such as "assume-role".

    Raises ConfigurationError without usable credentials, and CredentialsError if a service cannot be reached.
    """
    source = CredentialSource(profile, region, role, proxy_url=proxy_url)
    await source.get()
    return source.provider


@asynccontextmanager
async def open_kinesis(
    stream: str,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    ca_file: str | None = None,
    profile: str | None = None,
    role: AssumedRole | None = None,
    proxy_url: str | None = None,
) -> AsyncIterator[KinesisClient]:
    """Open a client of one stream, by its name or its ARN.

    Credentials come from botocore's chain (environment, profile, container, instance). `region`: by default the ARN's,
    then AWS_REGION, then botocore's. `endpoint_url`: another endpoint than AWS's, `https://` or, without TLS,
    `http://`. `ca_file`: the certificate authorities to trust, in PEM format; by default AWS_CA_BUNDLE, then the
    profile's, REQUESTS_CA_BUNDLE, and botocore's.
    `profile`: a profile of the AWS configuration. `role`: a role that these credentials assume, for a stream of another
    account. `proxy_url`: the HTTP proxy, also for the services that provide credentials:
    `http://[USER:PASSWORD@]HOST:PORT` or `https://`; "" is none. By default the environment says it, in HTTPS_PROXY,
    HTTP_PROXY and NO_PROXY as botocore reads them. Raises ConfigurationError.
    """
    require_trio("efo.open_kinesis", "the stream's name, or efo.open_kinesis(...) without `async with`, as the stream")
    name, arn_region = parse_stream(stream)
    if endpoint_url is None and region is not None and arn_region not in {None, region}:
        raise ConfigurationError(
            f"region={shown(region)} is not that of the stream's ARN: remove it, or write {arn_region!r}"
        )
    where: StreamLocation = {
        "region": region,
        "endpoint_url": endpoint_url,
        "ca_file": ca_file,
        "profile": profile,
        "proxy_url": proxy_url,
    }
    endpoint = endpoint_of(stream, **where)
    connector = Connector.of(endpoint)
    source, clock = CredentialSource(profile, endpoint.region, role, proxy_url=proxy_url), ServiceClock()
    correct = Refusals(source, clock).correct
    # The URL of the endpoint: otherwise botocore would call other hosts for some calls, see `endpoint.py`.
    found: StreamLocation = {"region": endpoint.region, "endpoint_url": endpoint.url, "ca_file": endpoint.ca_file}
    lazy = open_aiobotocore(source, clock, {**where, **found})
    with collapse_groups():
        pool = ConnectionPool(connector.connect, address=endpoint.authority)
        async with lazy as aiobotocore, running(pool.run):
            signer = Signer(source, clock, f"{endpoint.url}/", endpoint.region)
            caller = ServiceCaller(
                pool, sign=signer.sign, authority=endpoint.authority, scheme=endpoint.scheme, correct=correct
            )
            control_plane = AwsControlPlane(
                aiobotocore, caller, name, stream if arn_region else None, connector.check_scheme
            )
            yield KinesisClient(
                stream=name,
                control_plane=control_plane,
                connect=connector.connect,
                sign=signer.sign,
                authority=endpoint.authority,
                scheme=endpoint.scheme,
                clock=time.time,
                service_time=control_plane.service_time,
                stream_arn=stream if arn_region else None,
                region=endpoint.region,
                correct=correct,
            )


class Signer:
    """Signs requests to Kinesis. `source`: the credentials. `clock`: the service's."""

    def __init__(self, source: CredentialSource, clock: ServiceClock, url: str, region: str) -> None:
        self._source = source
        self._clock = clock
        self._url = url
        self._region = region

    async def sign(self, target: str, body: bytes) -> Sequence[tuple[str, str]]:
        """Return the headers that authenticate a POST.

        Raises ConfigurationError without credentials, and CredentialsError if they cannot be refreshed now.
        """
        credentials = await self._source.get()
        request = botocore.awsrequest.AWSRequest(
            method="POST",
            url=self._url,
            data=body,
            headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": target},
        )
        self._clock.stamp(request)
        ClockedSigV4(credentials, "kinesis", self._region).add_auth(request)
        names = ("X-Amz-Date", "X-Amz-Security-Token", "Authorization")
        return [(name, request.headers[name]) for name in names if name in request.headers]
