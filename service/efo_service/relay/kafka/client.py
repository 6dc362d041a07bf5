"""Access to a Kafka cluster: the configuration of its client library, and tokens for Amazon MSK with IAM.

The token is the URL of the action kafka-cluster:Connect, with a SigV4 signature in its query, in URL-safe base64
without padding (AWS: "Configure clients to use IAM access control"; MSK's open-source signers make the same token).
"""

from __future__ import annotations

import logging
import os
import time
from base64 import urlsafe_b64encode
from collections import deque
from time import monotonic
from typing import Any, Final

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from efo.aws.credentials import CredentialSource
from efo.errors import EfoError
from efo_service.relay.errors import SinkError
from efo_service.relay.kafka.errors import KafkaRefusedError, creation_error, translated
from efo_service.relay.kafka.options import KafkaOptions

Config = dict[str, Any]
"""The configuration of librdkafka: its names and values."""

_MAX_ERRORS: Final = 100
_REJECTED: Final = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}  # noqa: SLF001 - part of its API
_LOG: Final = logging.getLogger("efo.kafka")


def client_config(
    options: KafkaOptions, region: str | None = None, profile: str | None = None, proxy_url: str | None = None
) -> Config:
    """Return the configuration of connections to the cluster. Raises KafkaRefusedError.

    `region`, `profile`, `proxy_url`: of AWS, for the credentials of AWS_MSK_IAM. Kafka itself has no HTTP proxies.
    """
    return {
        "bootstrap.servers": options.bootstrap_servers,
        "client.id": "efo",
        "security.protocol": options.security_protocol,
        # Reconnect within one second to a broker that was restarted; the default is ten.
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 60_000,
        # By default the library logs to stderr in a different format. Important messages are raised as errors too.
        "logger": _LOG,
        "log_level": 2,
        **_tls(options),
        **_sasl(options, region, profile, proxy_url),
    }


def _tls(options: KafkaOptions) -> Config:
    files = {
        "ssl.ca.location": options.ca_file,
        "ssl.certificate.location": options.certificate_file,
        "ssl.key.location": options.key_file,
    }
    config: Config = {name: str(path) for name, path in files.items() if path is not None}
    if options.key_password is not None:
        config["ssl.key.password"] = options.key_password
    return config


def _sasl(options: KafkaOptions, region: str | None, profile: str | None, proxy_url: str | None) -> Config:
    match options.sasl_mechanism:
        case None:
            return {}
        case "AWS_MSK_IAM":
            region = (
                options.aws_region or region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
            )
            if region is None:
                raise KafkaRefusedError("AWS_MSK_IAM needs the cluster's region: set [relay.kafka] aws_region")
            source = CredentialSource(profile, region, proxy_url=proxy_url)
            return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": IamTokens(region, source)}
        case "OAUTHBEARER":
            config: Config = {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": options.oauth_token_url,
                "sasl.oauthbearer.client.id": options.oauth_client_id,
            }
            if options.oauth_client_secret is not None:
                config["sasl.oauthbearer.client.secret"] = options.oauth_client_secret
            if options.oauth_scope is not None:
                config["sasl.oauthbearer.scope"] = options.oauth_scope
            return config
        case mechanism:
            config = {"sasl.mechanism": mechanism, "sasl.username": options.sasl_username}
            if options.sasl_password is not None:
                config["sasl.password"] = options.sasl_password
            return config


class ConnectionErrors:
    """An `error_cb` that keeps a client's connection errors. A call itself only reports that it timed out."""

    def __init__(self) -> None:
        self._errors: deque[KafkaError] = deque(maxlen=_MAX_ERRORS)

    def __call__(self, error: KafkaError) -> None:
        """Keep an error."""
        self._errors.append(error)

    @property
    def are_credentials_rejected(self) -> bool:
        """Whether the broker rejected the credentials, so that waiting does not help."""
        return any(error.code() in _REJECTED for error in self._errors)

    def explain(self, error: SinkError, action: str) -> SinkError:
        """Return the KafkaRefusedError behind a time-out if there is one, else `error`."""
        reasons = [translated(kept, action) for kept in self._errors]
        return next((reason for reason in reasons if isinstance(reason, KafkaRefusedError)), error)


_POLL_SECONDS: Final = 1.0


def open_admin(config: Config, errors: ConnectionErrors) -> AdminClient:
    """Return a client of the cluster, which is not connected yet. `errors`: gets its connection errors.

    Raises KafkaRefusedError.
    """
    try:
        return AdminClient(config | {"error_cb": errors})
    except KafkaException as error:
        raise creation_error(error.args[0]) from error


def wait_for_brokers(admin: AdminClient, errors: ConnectionErrors, servers: str, seconds: float) -> int:
    """Wait until a broker responds; return the number of brokers.

    Rejected credentials are raised at once, since waiting does not help. Raises KafkaUnavailableError and
    KafkaRefusedError.
    """
    action = f"reach the brokers {servers} within {seconds:g} s"
    deadline = monotonic() + seconds
    while True:
        try:
            return len(admin.list_topics(timeout=min(_POLL_SECONDS, seconds)).brokers)
        except KafkaException as error:
            admin.poll(0)
            if errors.are_credentials_rejected or monotonic() >= deadline:
                raise errors.explain(translated(error.args[0], action), action) from error


LIFETIME: Final = 900
"""Seconds that a token is valid: the maximum of MSK. The client library asks for a new one after four fifths of it."""
_USER_AGENT: Final = "efo"


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
