"""Signs requests of the data plane with SigV4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.exceptions

from efo.kinesis.aws.errors import translated


class Signer:
    """Signs requests with the credentials of a botocore session, which refreshes them before they expire."""

    def __init__(self, session: Any, url: str, region: str) -> None:
        self._session = session
        self._url = url
        self._region = region
        self._had_credentials = False

    async def sign(self, target: str, body: bytes) -> Sequence[tuple[str, str]]:
        """Return the headers that authenticate a POST.

        Raises ConfigurationError without credentials, and TransportError if they cannot be refreshed now.
        """
        with translated(had_credentials=self._had_credentials):
            credentials = await self._session.get_credentials()
            if credentials is None:
                raise botocore.exceptions.NoCredentialsError
            frozen = await credentials.get_frozen_credentials()
        self._had_credentials = True
        request = botocore.awsrequest.AWSRequest(
            method="POST",
            url=self._url,
            data=body,
            headers={"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": target},
        )
        botocore.auth.SigV4Auth(frozen, "kinesis", self._region).add_auth(request)
        names = ("X-Amz-Date", "X-Amz-Security-Token", "Authorization")
        return [(name, request.headers[name]) for name in names if name in request.headers]
