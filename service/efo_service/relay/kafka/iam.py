"""Tokens for Amazon MSK with IAM: an OAUTHBEARER token with a request that is presigned with the AWS credentials.

The token is the URL of the action kafka-cluster:Connect, with a SigV4 signature in its query, in URL-safe base64
without padding (AWS: "Configure clients to use IAM access control"; MSK's open-source signers make the same token).
"""

from __future__ import annotations

import logging
import time
from base64 import urlsafe_b64encode
from typing import Final

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from efo.aws.credentials import CredentialSource
from efo.errors import EfoError
from efo_service.relay.errors import SinkError

LIFETIME: Final = 900
"""Seconds that a token is valid: the maximum of MSK. The client library asks for a new one after four fifths of it."""
_USER_AGENT: Final = "efo"
_LOG: Final = logging.getLogger("efo.kafka")


class IamTokens:
    """An `oauth_cb` that creates tokens from the current credentials. The client library calls it in its threads."""

    def __init__(self, region: str, source: CredentialSource) -> None:
        self._region = region
        self._source = source

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return a token and its expiry time, in seconds since the epoch. Raises SinkError.

        The client library only reports that the callback failed, so the reason is logged here.
        """
        try:
            return self._token()
        except SinkError as error:
            _LOG.error("%s", error)
            raise

    def _token(self) -> tuple[str, float]:
        try:
            credentials = self._source.get_blocking()
        except EfoError as error:
            raise SinkError(f"AWS_MSK_IAM: {error}") from None
        return iam_token(self._region, credentials), time.time() + LIFETIME


def iam_token(region: str, credentials: ReadOnlyCredentials) -> str:
    """Return a token for the MSK clusters of a region."""
    url = f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect"
    request = AWSRequest("GET", url)
    SigV4QueryAuth(credentials, "kafka-cluster", region, expires=LIFETIME).add_auth(request)
    return urlsafe_b64encode(f"{request.url}&User-Agent={_USER_AGENT}".encode()).decode().rstrip("=")
