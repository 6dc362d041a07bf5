"""The way to one DynamoDB table: an aiobotocore client on trio, and the one seam to its errors."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiobotocore.config
import aiobotocore.httpxsession
import aiobotocore.session
import botocore.exceptions
import trio

from efo.errors import ConfigurationError, LeaseError, LeaseStoreCorruptError, LeaseStoreUnavailableError
from efo.tls import client_tls_context

ATTEMPTS: Final = 3
"""How often botocore makes a call that was throttled, failed inside DynamoDB or was cut off (its standard mode)."""
CONNECTIONS: Final = 25
"""Connections at once: a worker writes its leases side by side."""

_NO_CREDENTIALS: Final = (
    botocore.exceptions.NoCredentialsError,
    botocore.exceptions.PartialCredentialsError,
    botocore.exceptions.CredentialRetrievalError,
)


class ConditionFailedError(Exception):
    """A write's condition was not met. `item`: the row as it is, if the service tells it.

    `was_repeated`: botocore had made the call before, so that what failed the condition may be our own first try.
    """

    def __init__(self, item: Mapping[str, Any] | None, *, was_repeated: bool) -> None:
        super().__init__()
        self.item = item
        self.was_repeated = was_repeated


class TableNotFoundError(LeaseStoreUnavailableError):
    """There is no table of the name."""


class TableExistsError(LeaseStoreUnavailableError):
    """The table is there already, or is being changed."""


_DENIED: Final = (
    LeaseStoreUnavailableError,
    (
        ". The credentials need dynamodb:DescribeTable, Scan, GetItem, PutItem, UpdateItem and DeleteItem on the "
        "table; CreateTable, TagResource and UpdateContinuousBackups to make it"
    ),
)
_THROTTLED: Final = (
    LeaseStoreUnavailableError,
    f". It was asked {ATTEMPTS} times; give the table more capacity, or bill it on demand (PAY_PER_REQUEST)",
)
_REFUSALS: Final[dict[str, tuple[type[LeaseError], str]]] = {
    "ResourceNotFoundException": (TableNotFoundError, ""),
    "ResourceInUseException": (TableExistsError, ""),
    "ValidationException": (
        LeaseStoreCorruptError,
        ". A lease table has the partition key leaseKey, a string, and no sort key: name another table",
    ),
    "AccessDeniedException": _DENIED,
    "UnrecognizedClientException": _DENIED,
    "InvalidSignatureException": _DENIED,
    "ProvisionedThroughputExceededException": _THROTTLED,
    "ThrottlingException": _THROTTLED,
    "RequestLimitExceeded": _THROTTLED,
}
"""What DynamoDB's errors are to us, and what to do about them. The others may pass by themselves."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is. `profile`: of the AWS configuration. `timeout`: seconds that one try of a call may take."""

    region: str | None = None
    endpoint_url: str | None = None
    ca_file: str | None = None
    profile: str | None = None
    timeout: float = 2.0


@asynccontextmanager
async def open_table(table: str, place: Place) -> AsyncIterator[Table]:
    """Open the way to a table, whether it is there or not. Raises ConfigurationError."""
    config = aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=place.timeout,
        read_timeout=place.timeout,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    with _settings_checked():
        session = aiobotocore.session.AioSession(profile=place.profile)
        bundle = place.ca_file or session.get_config_variable("ca_bundle")
        if bundle is not None:
            client_tls_context(bundle)  # botocore would raise bare errors of ssl
        session.set_default_client_config(config)  # by it, credentials too are fetched on trio
        context = session.create_client(
            "dynamodb",
            # botocore itself reads AWS_DEFAULT_REGION only; the containers that AWS starts set AWS_REGION.
            region_name=place.region or os.environ.get("AWS_REGION"),
            endpoint_url=place.endpoint_url,
            verify=place.ca_file,
            config=config,
        )
        client = await context.__aenter__()
    try:
        yield Table(table, client)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
            await context.__aexit__(None, None, None)


class Table:
    """One table; `call` makes the calls about it."""

    def __init__(self, name: str, client: Any) -> None:
        self.name = name
        self._client = client
        self._has_answered = False
        self._where = f"lease table {name!r} in {client.meta.region_name}"

    def __str__(self) -> str:
        return self._where

    @property
    def events(self) -> Any:
        """The client's hooks, as botocore calls them, for who wants to see its calls."""
        return self._client.meta.events

    async def call(self, operation: str, **arguments: object) -> Mapping[str, Any]:
        """Make a call of botocore's about the table.

        Raises LeaseStoreUnavailableError (the two about tables are such), LeaseStoreCorruptError where it is no lease
        table, ConfigurationError where there never were credentials, and ConditionFailedError.
        """
        errors = botocore.exceptions
        try:
            answer: Mapping[str, Any] = await getattr(self._client, operation)(TableName=self.name, **arguments)
        except errors.ClientError as error:
            raise self._refusal(error) from error
        except (*_NO_CREDENTIALS, RuntimeError) as error:
            # For credentials that have expired when they are fetched botocore has no class of its own.
            if isinstance(error, RuntimeError) and "expired" not in str(error):
                raise
            if self._has_answered:
                raise LeaseStoreUnavailableError(f"{self}: the AWS credentials cannot be refreshed: {error}") from error
            raise ConfigurationError(
                f"{self}: no usable AWS credentials: {error}; botocore looks in the environment, ~/.aws, the "
                "container's and the instance's roles"
            ) from error
        except (errors.HTTPClientError, errors.ConnectionError) as error:
            raise LeaseStoreUnavailableError(
                f"{self}: DynamoDB cannot be reached: {error}. Check the network, the region, and the endpoint if one "
                "is set"
            ) from error
        except (errors.BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"{self}: botocore refuses the call: {error}") from error
        self._has_answered = True
        return answer

    def _refusal(self, error: botocore.exceptions.ClientError) -> Exception:
        """Return what a response other than 200 says."""
        said = error.response.get("Error", {})
        code, message = str(said.get("Code", "")), " ".join(str(said.get("Message", "")).split())
        if code == "ConditionalCheckFailedException":
            was_repeated = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
            return ConditionFailedError(error.response.get("Item"), was_repeated=was_repeated)
        kind, advice = _REFUSALS.get(code, (LeaseStoreUnavailableError, ""))
        return kind(f"{self}: DynamoDB says {code}: {message}{advice}")


@contextmanager
def _settings_checked() -> Iterator[None]:
    errors = botocore.exceptions
    try:
        yield
    except errors.NoRegionError as error:
        raise ConfigurationError("no AWS region for the lease table: set region or AWS_REGION") from error
    except (errors.BotoCoreError, ValueError) as error:
        raise ConfigurationError(f"botocore refuses the settings of the lease table: {error}") from error
