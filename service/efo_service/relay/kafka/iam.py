"""Tokens for Amazon MSK with IAM: a presigned request in an OAUTHBEARER token, made from the AWS chain's credentials.

The token is the URL of the action kafka-cluster:Connect, signed by SigV4 in its query, in base64 for URLs without
padding (AWS: "Configure clients to use IAM access control"; the open-source signers of MSK make the same).
"""

from __future__ import annotations

import logging
import time
from base64 import urlsafe_b64encode
from typing import Final

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from efo_service.relay.errors import SinkError

LIFE: Final = 900
"""Seconds that a token is valid: the most that MSK takes. The client library asks again at four fifths of it."""
_USER_AGENT: Final = "efo"
_LOG: Final = logging.getLogger("efo.kafka")


class IamTokens:
    """Gives tokens, each from the credentials of that moment: an `oauth_cb`, called in a thread of the library."""

    def __init__(self, region: str, session: Session) -> None:
        self._region = region
        self._session = session

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return a token and when it expires, in seconds since the epoch. Raises SinkError.

        The client library says only that the callback failed: so why is logged here.
        """
        try:
            return self._token()
        except SinkError as error:
            _LOG.error("%s", error)
            raise

    def _token(self) -> tuple[str, float]:
        try:
            credentials = self._session.get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials is not None else None
        except BotoCoreError as error:
            raise SinkError(f"AWS_MSK_IAM: cannot read the AWS credentials: {error}") from error
        if frozen is None:
            raise SinkError("AWS_MSK_IAM: the AWS chain has no credentials (environment, profile or role)")
        return iam_token(self._region, frozen), time.time() + LIFE


def iam_token(region: str, credentials: ReadOnlyCredentials) -> str:
    """Return a token for the MSK clusters of a region."""
    url = f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect"
    request = AWSRequest("GET", url)
    SigV4QueryAuth(credentials, "kafka-cluster", region, expires=LIFE).add_auth(request)
    return urlsafe_b64encode(f"{request.url}&User-Agent={_USER_AGENT}".encode()).decode().rstrip("=")
