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
from efo.aws.session import ServiceSession
from efo.errors import (
    ConfigurationError,
    CredentialsError,
    EfoError,
    LeaseError,
    LeaseStoreCorruptError,
    LeaseStoreUnavailableError,
)
from efo.foreign_errors import chain_of, reason_of
from efo.protocol.service_errors import service_error
from efo.tls import client_tls_context

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
    """Where a table is. `profile`: of the AWS configuration. `timeout`: maximum seconds per try of a call."""

    region: str | None = None
    endpoint_url: str | None = None
    ca_file: str | None = None
    profile: str | None = None
    timeout: float = 2.0


@asynccontextmanager
async def open_table(table: str, location: TableLocation) -> AsyncIterator[Table]:
    """Open a client for a table, which may be missing. Raises ConfigurationError."""
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=location.timeout,
        read_timeout=location.timeout,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    region = location.region or os.environ.get("AWS_REGION")  # botocore reads AWS_DEFAULT_REGION only
    errors = botocore.exceptions
    stack = AsyncExitStack()
    try:
        source = CredentialSource(location.profile, region)
        session = ServiceSession(source, ServiceClock(), profile=location.profile, region=region, config=config)
        bundle = location.ca_file or session.setting("ca_bundle")
        if bundle is not None:
            client_tls_context(bundle)  # checks it: botocore would raise errors of ssl
        client = await stack.enter_async_context(
            session.open_client(
                "dynamodb", region_name=region, endpoint_url=location.endpoint_url, verify=location.ca_file
            )
        )
    except errors.NoRegionError:
        raise ConfigurationError("no AWS region for the lease table: set region or AWS_REGION") from None
    except (errors.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore rejects the settings of the lease table: {reason_of(error)}") from None
    async with stack:
        yield Table(table, client)


class Table:
    """One DynamoDB table."""

    def __init__(self, name: str, client: Any) -> None:
        self.name = name
        self._client = client
        self._description = f"lease table {name!r} in {client.meta.region_name}"

    def __str__(self) -> str:
        return self._description

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
            raise LeaseStoreUnavailableError(
                f"{self}: DynamoDB cannot be reached: {reason_of(error)}; check the network, the region, and the "
                "endpoint if one is set"
            ) from None
        return response

    def _translate(self, error: botocore.exceptions.ClientError) -> Exception:
        """Return the exception for an error response."""
        details = error.response.get("Error", {})
        code, message = str(details.get("Code", "")), " ".join(str(details.get("Message", "")).split())
        if code == "ConditionalCheckFailedException":
            was_retried = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
            return ConditionFailedError(error.response.get("Item"), was_retried=was_retried)
        kind, advice = _ERRORS.get(code, (LeaseStoreUnavailableError, ""))
        return kind(f"{self}: DynamoDB responds {service_error(code, message)}{advice}")
