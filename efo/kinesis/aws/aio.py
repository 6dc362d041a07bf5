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

from efo.aws.egress import reach_metadata_directly
from efo.kinesis.aws.role import AssumedRole
from efo.proxy import as_mapping, default_proxies, find_proxy


def make_session(
    profile: str | None, region: str | None = None, role: AssumedRole | None = None, proxy_url: str | None = None
) -> Any:
    """Return a session whose clients, which fetch credentials, run on trio and not on asyncio.

    With a role, its credentials are the session's; those of the AWS chain call AssumeRole, in this region.
    `proxy_url`: as for `open_kinesis`.
    """
    session = _session(profile, proxy_url)
    if role is None:
        return session
    assuming = _session(profile, proxy_url)
    provider = _RoleProvider(session, region, role)
    assuming.register_component("credential_provider", aiobotocore.credentials.AioCredentialResolver([provider]))
    return assuming


def _session(profile: str | None, proxy_url: str | None) -> Any:
    session = aiobotocore.session.AioSession(profile=profile)
    session.set_default_client_config(_config(proxies=default_proxies("https://sts.amazonaws.com", proxy_url)))
    reach_metadata_directly(session)
    return session


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
    session: Any, region: str, endpoint_url: str | None, ca_file: str | None, proxy_url: str | None = None
) -> AbstractAsyncContextManager[Any]:
    """Return a client of Kinesis that is to be entered."""
    proxies = None if endpoint_url is None else as_mapping(find_proxy(endpoint_url, proxy_url))
    client: AbstractAsyncContextManager[Any] = session.create_client(
        "kinesis", region_name=region, endpoint_url=endpoint_url, verify=ca_file, config=_config(proxies=proxies)
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
