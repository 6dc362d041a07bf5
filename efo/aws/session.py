"""Sessions of aiobotocore on trio whose clients have efo's credentials, region and clock.

Importing aiobotocore takes long: `efo.kinesis.aws.control_plane` imports this module when it needs it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiobotocore.credentials
import aiobotocore.session
import botocore.exceptions
import trio

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource, Refusals
from efo.protocol.service_errors import service_error
from efo.third_party_logs import keep_at

keep_at(logging.INFO, "aiobotocore", "httpcore2")
keep_at(logging.WARNING, "httpx2")  # at INFO it logs each call


class ServiceSession:
    """Makes clients of one service. Their calls raise botocore's errors, and those of `source`.

    `source`: their credentials. `clock`: the service's. `profile`, `region`: as for botocore; the region is that of all
    clients that name none. `config`: of all clients; its HTTP session must run on trio.
    """

    def __init__(
        self, source: CredentialSource, clock: ServiceClock, *, profile: str | None, region: str | None, config: Any
    ) -> None:
        self._session = aiobotocore.session.AioSession(profile=profile)
        self._refusals = Refusals(source, clock)
        if region is not None:
            self._session.set_config_variable("region", region)
        self._session.set_default_client_config(config)
        resolver = aiobotocore.credentials.AioCredentialResolver([_Provider(source)])
        self._session.register_component("credential_provider", resolver)
        clock.install(self._session)

    def get_config_variable(self, name: str) -> Any:
        """Return what botocore's configuration has for one of its variables."""
        return self._session.get_config_variable(name)

    @asynccontextmanager
    async def open_client(self, service: str, **options: object) -> AsyncIterator[Any]:
        """Open a client of botocore's. Closing it takes 2 s at most."""
        context = self._session.create_client(service, **options)
        client = await context.__aenter__()
        try:
            yield _Client(client, self._refusals)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
                await context.__aexit__(None, None, None)


class _Client:
    """A client of botocore's. A call that is refused for its time or its credentials is repeated once, with others."""

    def __init__(self, client: Any, refusals: Refusals) -> None:
        self.meta = client.meta
        self._client = client
        self._refusals = refusals

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        return partial(self._call, getattr(self._client, operation))

    async def _call(self, call: Callable[..., Awaitable[Any]], **arguments: object) -> Any:
        try:
            return await call(**arguments)
        except botocore.exceptions.ClientError as error:
            if not await self._refusals.correct(_service_error(error), _headers(error).get("date")):
                raise
        return await call(**arguments)


class _Credentials(aiobotocore.credentials.AioCredentials):  # type: ignore[misc] # botocore has no types
    """The credentials of a source, as aiobotocore's signers and endpoints ask for them."""

    def __init__(self, source: CredentialSource) -> None:
        super().__init__("", "", method=source.provider)
        self._source = source

    async def get_frozen_credentials(self) -> Any:
        """Return valid credentials, as `CredentialSource.get`."""
        return await self._source.get()

    async def get_account_id(self) -> str | None:
        """Return the account of the credentials, if their provider names it: DynamoDB has endpoints of accounts."""
        account: str | None = (await self._source.get()).account_id
        return account


class _Provider:
    """A provider of botocore's that has the credentials of a source. They are asked for at each signature."""

    METHOD = "efo"

    def __init__(self, source: CredentialSource) -> None:
        self._source = source

    async def load(self) -> _Credentials:
        return _Credentials(self._source)


def _service_error(error: botocore.exceptions.ClientError) -> Any:
    details = error.response.get("Error", {})
    return service_error(str(details.get("Code", "")), str(details.get("Message", "")))


def _headers(error: botocore.exceptions.ClientError) -> Mapping[str, str]:
    headers: Mapping[str, str] = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers
