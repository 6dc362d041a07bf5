"""Access to one DynamoDB table: an aiobotocore client on trio. Translates the errors of botocore."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiobotocore.config
import aiobotocore.httpxsession
import botocore.exceptions

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.aws.egress import find_authorities
from efo.aws.session import ServiceSession
from efo.aws.wrong_server import unreachable, wrong_content, wrong_server
from efo.errors import (
    ConfigurationError,
    CredentialsError,
    EfoError,
    LeaseError,
    LeaseStoreCorruptError,
    LeaseStoreUnavailableError,
)
from efo.protocol.service_errors import service_error
from efo.proxy import Proxy, default_proxies, find_proxy
from efo.third_party_errors import chain_of, reason_of

ATTEMPTS: Final = 3
"""How often botocore tries a call that is throttled, fails with a 5xx status or loses its connection ("standard")."""
CONNECTIONS: Final = 25
"""Maximum number of connections. A worker writes its leases concurrently."""

_LOG: Final = logging.getLogger("efo.aws")


class ConditionFailedError(Exception):
    """The condition of a write failed.

    `item`: the current row, if the service returned it.
    `was_retried`: botocore retried the call. The effect of the first try may be what failed the condition.
    """

    def __init__(self, item: Mapping[str, Any] | None, *, was_retried: bool) -> None:
        super().__init__()
        self.item = item
        self.was_retried = was_retried


class TableNotFoundError(LeaseStoreUnavailableError):
    """The table does not exist."""


class TableExistsError(LeaseStoreUnavailableError):
    """The table exists, or is being changed."""


class TableDeniedError(LeaseStoreUnavailableError):
    """The credentials do not permit the call."""


_UNREACHABLE: Final = (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError)
_PERMISSIONS: Final = (
    "; the credentials need dynamodb:DescribeTable, Scan, GetItem, PutItem, UpdateItem and DeleteItem on the "
    "table, and CreateTable, TagResource and UpdateContinuousBackups to create it"
)
_DENIED: Final = (LeaseStoreUnavailableError, _PERMISSIONS)
_THROTTLED: Final = (
    LeaseStoreUnavailableError,
    f"; tried {ATTEMPTS} times: give the table more capacity, or on-demand billing (PAY_PER_REQUEST)",
)
_ERRORS: Final[dict[str, tuple[type[LeaseError], str]]] = {
    "ResourceNotFoundException": (TableNotFoundError, ""),
    "ResourceInUseException": (TableExistsError, ""),
    "ValidationException": (
        LeaseStoreCorruptError,
        "; a lease table has the partition key leaseKey, a string, and no sort key: use another table",
    ),
    "AccessDeniedException": (TableDeniedError, _PERMISSIONS),
    "UnrecognizedClientException": _DENIED,
    "InvalidSignatureException": _DENIED,
    "ProvisionedThroughputExceededException": _THROTTLED,
    "ThrottlingException": _THROTTLED,
    "RequestLimitExceeded": _THROTTLED,
}
"""The type of efo's error for an error code of DynamoDB, and what to do about it. Other errors may be transient."""


@dataclass(frozen=True, slots=True)
class TableLocation:
    """Where a table is. `profile`: of the AWS configuration. `timeout`: maximum seconds per try of a call.

    `proxy_url`: as for `open_kinesis`.
    """

    region: str | None = None
    endpoint_url: str | None = None
    ca_file: str | None = None
    profile: str | None = None
    timeout: float = 2.0
    proxy_url: str | None = None


@asynccontextmanager
async def open_table(table: str, location: TableLocation) -> AsyncIterator[DynamoDbTable]:
    """Open a client for a table, which may be missing. Raises ConfigurationError."""
    proxy_url = location.proxy_url
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=location.timeout,
        read_timeout=location.timeout,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        proxies=default_proxies(location.endpoint_url or "https://dynamodb.amazonaws.com", proxy_url),
    )
    region = location.region or os.environ.get("AWS_REGION")  # botocore reads AWS_DEFAULT_REGION only
    errors = botocore.exceptions
    stack = AsyncExitStack()
    try:
        source = CredentialSource(location.profile, region, proxy_url=proxy_url)
        session = ServiceSession(source, ServiceClock(), profile=location.profile, region=region, config=config)
        authorities = find_authorities(session, location.ca_file)
        authorities.check()  # botocore would raise errors of ssl
        client = await stack.enter_async_context(
            session.open_client(
                "dynamodb", region_name=region, endpoint_url=location.endpoint_url, verify=authorities.path
            )
        )
    except errors.NoRegionError:
        raise ConfigurationError("no AWS region for the lease table: set region or AWS_REGION") from None
    except (errors.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore rejects the settings of the lease table: {reason_of(error)}") from None
    async with stack:
        yield DynamoDbTable(table, client, find_proxy(client.meta.endpoint_url, proxy_url))


class DynamoDbTable:
    """One DynamoDB table."""

    def __init__(self, name: str, client: Any, proxy: Proxy | None = None) -> None:
        self.name = name
        self._client = client
        self._proxy = proxy
        self._has_responded = False
        self._description = f"lease table {name!r} in {client.meta.region_name}"

    def __str__(self) -> str:
        return self._description

    def beside(self, name: str) -> DynamoDbTable:
        """Return another table of the same account and region."""
        return DynamoDbTable(name, self._client, self._proxy)

    @property
    def events(self) -> Any:
        """The event hooks of the botocore client, for measurements."""
        return self._client.meta.events

    async def call(self, operation: str, **arguments: object) -> Mapping[str, Any]:
        """Call an operation of botocore's client on the table; return the response.

        Raises LeaseStoreUnavailableError (also as TableNotFoundError or TableExistsError), LeaseStoreCorruptError (not
        a lease table), ConfigurationError (no credentials from the start) and ConditionFailedError.
        """
        errors = botocore.exceptions
        try:
            response: Mapping[str, Any] = await getattr(self._client, operation)(TableName=self.name, **arguments)
        except errors.ClientError as error:
            raise self._translate(error) from None
        except CredentialsError as error:
            raise LeaseStoreUnavailableError(f"{self}: {error}") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{self}: {error}") from None
        except EfoError:
            raise
        except Exception as error:  # noqa: BLE001 - botocore has no class for an answer that is no JSON
            _LOG.debug("%s: %s failed: %s", self, operation, chain_of(error))
            if isinstance(error, errors.BotoCoreError | ValueError) and not isinstance(error, _UNREACHABLE):
                raise ConfigurationError(f"{self}: botocore rejects the call: {reason_of(error)}") from None
            raise self._translate(error) from None
        if (reason := wrong_content(response)) is not None:
            raise self._wrong_server(reason)
        self._has_responded = True
        return response

    def _unreachable(self, error: Exception) -> LeaseStoreUnavailableError:
        return LeaseStoreUnavailableError(
            f"{self}: DynamoDB cannot be reached: {unreachable(error, self._proxy)}; check the network, the region, "
            "and the endpoint if one is set"
        )

    def _wrong_server(self, reason: str) -> EfoError:
        """Return the error for what answers in its place: a wrong setting, or an outage if DynamoDB did before."""
        kind = LeaseStoreUnavailableError if self._has_responded else ConfigurationError
        return kind(f"{self}: DynamoDB cannot be reached: {reason}")

    def _translate(self, error: Exception) -> Exception:
        """Return the exception for an error response, or for a connection that was not made."""
        if (reason := wrong_server(error, self._proxy)) is not None:
            return self._wrong_server(reason)
        if not isinstance(error, botocore.exceptions.ClientError):
            return self._unreachable(error)
        details = error.response.get("Error", {})
        code, message = str(details.get("Code", "")), " ".join(str(details.get("Message", "")).split())
        if code == "ConditionalCheckFailedException":
            was_retried = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
            return ConditionFailedError(error.response.get("Item"), was_retried=was_retried)
        kind, advice = _ERRORS.get(code, (LeaseStoreUnavailableError, ""))
        return kind(f"{self}: DynamoDB responds {service_error(code, message)}{advice}")
