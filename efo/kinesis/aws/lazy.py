"""aiobotocore's client, made when it is first needed.

A start whose reads of the control plane succeed on efo's own connection needs none: see `control_plane.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any

import trio

from efo.aws.clock import ServiceClock
from efo.aws.credentials import CredentialSource
from efo.kinesis.client import StreamLocation


class LazyAiobotocore:
    """Calls of the control plane, through aiobotocore. Made by `open_aiobotocore`.

    `source`: the credentials. `clock`: the service's. `where`: with the region and the URL that
    were found.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        source: CredentialSource,
        clock: ServiceClock,
        where: StreamLocation,
    ) -> None:
        self._stack = stack
        self._source = source
        self._clock = clock
        self._where = where
        self.region = where["region"]
        self._making = trio.Lock()
        self._client: Any = None

    async def call(self, operation: str, **arguments: object) -> Mapping[str, Any]:
        """Call an operation by botocore's name for it, with botocore's retries.

        Raises botocore's errors, ConfigurationError without credentials, and CredentialsError.
        """
        async with self._making:
            if self._client is None:
                # In a thread, because it takes long: shards may be read at the same time.
                aio = await trio.to_thread.run_sync(import_module, "efo.kinesis.aws.aio")
                client = aio.open_client(self._source, self._clock, self._where)
                self._client = await self._stack.enter_async_context(client)
        response: Mapping[str, Any] = await getattr(self._client, operation)(**arguments)
        return response


@asynccontextmanager
async def open_aiobotocore(
    source: CredentialSource, clock: ServiceClock, where: StreamLocation
) -> AsyncIterator[LazyAiobotocore]:
    """Yield a LazyAiobotocore; close what it made at the end, within 2 s."""
    stack = AsyncExitStack()
    try:
        yield LazyAiobotocore(stack, source, clock, where)
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
            await stack.aclose()
