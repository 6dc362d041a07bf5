"""Signs requests of the data plane with SigV4."""

from __future__ import annotations

from collections.abc import Sequence

import botocore.awsrequest

from efo.aws.clock import ClockedSigV4, ServiceClock
from efo.aws.credentials import CredentialSource


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
