"""aiobotocore on trio: a session for credentials, and a client of the control plane.

Importing aiobotocore takes longer than everything else at the start. So `lazy.py` imports this module when it needs it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import aiobotocore.config
import aiobotocore.credentials
import aiobotocore.httpxsession
import aiobotocore.session

from efo.kinesis.aws.role import AssumedRole


def make_session(profile: str | None, region: str | None = None, role: AssumedRole | None = None) -> Any:
    """Return a session whose clients, which fetch credentials, run on trio and not on asyncio.

    With a role, its credentials are the session's; those of the AWS chain call AssumeRole, in this region.
    """
    session = aiobotocore.session.AioSession(profile=profile)
    session.set_default_client_config(_config())
    if role is None:
        return session
    assuming = aiobotocore.session.AioSession(profile=profile)
    assuming.set_default_client_config(_config())
    provider = _RoleProvider(session, region, role)
    assuming.register_component("credential_provider", aiobotocore.credentials.AioCredentialResolver([provider]))
    return assuming


class _RoleProvider:
    """A provider of botocore's: AssumeRole, by the credentials of another session. botocore refreshes them."""

    METHOD = "assume-role"

    def __init__(self, source: Any, region: str | None, role: AssumedRole) -> None:
        self._source = source
        self._region = region
        self._role = role

    async def load(self) -> Any:
        """Return credentials that are fetched when they are first used; None if the chain has none."""
        source = await self._source.get_credentials()
        if source is None:
            return None
        fetcher = aiobotocore.credentials.AioAssumeRoleCredentialFetcher(
            partial(self._source.create_client, region_name=self._region),
            source,
            self._role.arn,
            extra_args=self._role.arguments(),
        )
        return aiobotocore.credentials.AnyioDeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)


def make_client(
    session: Any, region: str, endpoint_url: str | None, ca_file: str | None
) -> AbstractAsyncContextManager[Any]:
    """Return a client of Kinesis that is to be entered. It uses no proxies."""
    client: AbstractAsyncContextManager[Any] = session.create_client(
        "kinesis", region_name=region, endpoint_url=endpoint_url, verify=ca_file, config=_config(proxies={})
    )
    return client


def _config(**options: Any) -> Any:
    return aiobotocore.config.AioConfig(
        http_session_cls=aiobotocore.httpxsession.HttpxSession,
        connect_timeout=10,
        read_timeout=20,
        retries={"mode": "standard", "total_max_attempts": 5},
        **options,
    )
