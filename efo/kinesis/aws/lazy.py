"""aiobotocore's session and client, made when they are first needed.

A start that finds its credentials in the environment, and whose reads of the control plane succeed on efo's own
connection, needs neither: see `control_plane.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any

import botocore.credentials
import trio

from efo.kinesis.aws.role import AssumedRole


class LazyAiobotocore:
    """Credentials and calls of the control plane, through aiobotocore. Made by `open_aiobotocore`.

    `profile`: a profile of the AWS configuration. `region`, `endpoint_url`, `ca_file`: as for botocore's clients.
    `role`: whose credentials are used. `proxy_url`: as for `open_kinesis`, also for the services that have credentials.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        *,
        profile: str | None,
        region: str,
        endpoint_url: str | None,
        ca_file: str | None,
        role: AssumedRole | None = None,
        proxy_url: str | None = None,
    ) -> None:
        self._stack = stack
        self._profile = profile
        self.region = region
        self._endpoint_url = endpoint_url
        self._ca_file = ca_file
        self._role = role
        self._proxy_url = proxy_url
        self._making = trio.Lock()
        self._environment: _EnvironmentCredentials | None = None
        self._session: Any = None
        self._client: Any = None

    async def get_credentials(self) -> Any:
        """Return credentials with a method `get_frozen_credentials`; None if there are none. Raises botocore's errors.

        The environment is the first provider of botocore's chain, unless a profile or a role is given.
        """
        if self._environment is None and self._session is None and self._profile is None and self._role is None:
            found = botocore.credentials.EnvProvider().load()
            self._environment = found and _EnvironmentCredentials(found)
        if self._environment is not None:
            return self._environment
        return await (await self._get_session()).get_credentials()

    async def call(self, operation: str, **arguments: object) -> Mapping[str, Any]:
        """Call an operation by botocore's name for it, with botocore's retries. Raises botocore's errors."""
        session = await self._get_session()
        async with self._making:
            if self._client is None:
                aio = import_module("efo.kinesis.aws.aio")
                client = aio.make_client(session, self.region, self._endpoint_url, self._ca_file, self._proxy_url)
                self._client = await self._stack.enter_async_context(client)
        response: Mapping[str, Any] = await getattr(self._client, operation)(**arguments)
        return response

    async def _get_session(self) -> Any:
        async with self._making:
            if self._session is None:
                # In a thread, because it takes long: shards may be read at the same time.
                aio = await trio.to_thread.run_sync(import_module, "efo.kinesis.aws.aio")
                self._session = aio.make_session(self._profile, self.region, self._role, self._proxy_url)
        return self._session


class _EnvironmentCredentials:
    """The credentials of the environment, with the interface of aiobotocore's."""

    def __init__(self, credentials: botocore.credentials.Credentials) -> None:
        self._credentials = credentials

    @property
    def method(self) -> str:
        """The name of the provider."""
        return str(self._credentials.method)

    async def get_frozen_credentials(self) -> botocore.credentials.ReadOnlyCredentials:
        """Return the key, the secret and the token. If they expire, the environment is read again."""
        return self._credentials.get_frozen_credentials()


@asynccontextmanager
async def open_aiobotocore(
    *,
    profile: str | None,
    region: str,
    endpoint_url: str | None,
    ca_file: str | None,
    role: AssumedRole | None = None,
    proxy_url: str | None = None,
) -> AsyncIterator[LazyAiobotocore]:
    """Yield a LazyAiobotocore; close what it made at the end, within 2 s."""
    stack = AsyncExitStack()
    try:
        yield LazyAiobotocore(
            stack,
            profile=profile,
            region=region,
            endpoint_url=endpoint_url,
            ca_file=ca_file,
            role=role,
            proxy_url=proxy_url,
        )
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
            await stack.aclose()
