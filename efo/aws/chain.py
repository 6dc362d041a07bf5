"""botocore's chain of credential providers, asked once: which provider has credentials, or why it has none.

The chain is the synchronous one, in a thread: it is the same for trio and for the threads of other libraries. A session
of botocore keeps the files that it has read. So each attempt makes a new one, which sees a new login and a new file.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NoReturn

import botocore.exceptions
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    DeferredRefreshableCredentials,
    EnvProvider,
    ReadOnlyCredentials,
)
from botocore.session import Session

from efo.aws.clock import ServiceClock
from efo.aws.egress import reach_metadata_directly
from efo.aws.explanations import ChainError, explained, failure, mfa_needed, nothing_found
from efo.aws.role import AssumedRole
from efo.aws.variables import check_credentials, check_profiles, check_variables
from efo.errors import ClockSkewError, ConfigurationError
from efo.protocol.service_errors import service_error
from efo.proxy import default_proxies
from efo.third_party_errors import chain_of
from efo.third_party_logs import silence

PROCESS_SECONDS: Final = 60.0
"""How long the command of `credential_process` may take. It is then killed."""
_PROCESS: Final = "custom-process"
_LOG: Final = logging.getLogger("efo.aws")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Credentials, and the provider that has them, by botocore's name. `seconds`: until they expire; None: never."""

    credentials: ReadOnlyCredentials
    provider: str
    seconds: float | None = None


class Chain:
    """The chain of a profile. `region`: of all services that it asks. `role`: what its credentials assume.

    `clock`: signs the requests to STS, and learns from them. `proxy_url`: the proxy through which they are asked, as
    for `open_kinesis`. Raises ConfigurationError if it is none.
    """

    def __init__(
        self,
        profile: str | None,
        region: str | None,
        role: AssumedRole | None,
        clock: ServiceClock,
        proxy_url: str | None = None,
    ) -> None:
        self._proxies = default_proxies("https://sts.amazonaws.com", proxy_url)
        self._profile = profile
        self._region = region
        self._role = role
        self._clock = clock
        self._method = ""  # of the provider that is being asked
        self._loader: Any = None

    @property
    def is_environment(self) -> bool:
        """Whether the credentials are those of the environment, so that `load` does not block."""
        return self._profile is None and self._role is None and bool(os.environ.get("AWS_ACCESS_KEY_ID"))

    def load(self, *, is_first: bool) -> Loaded:
        """Return what the chain has. It blocks. Raises ChainError, and ConfigurationError for a wrong variable.

        `is_first`: whether a service is asked several times, as SDKs do. Later the caller tries again.
        """
        check_variables()
        with silence("botocore", "urllib3"):
            try:
                return self._load(is_first=is_first)
            except (ChainError, ConfigurationError):
                raise
            except Exception as error:  # noqa: BLE001 - of botocore, its parsers, HTTP, the files and the command
                _LOG.debug("the AWS credentials: %s failed: %s", self._method or "a profile", chain_of(error))
                if not self._is_corrected(error):
                    raise explained(error, self._method, self._named_profile) from None
            return self._load(is_first=is_first)

    @property
    def _named_profile(self) -> str | None:
        return self._profile or os.environ.get("AWS_DEFAULT_PROFILE") or os.environ.get("AWS_PROFILE")

    def _load(self, *, is_first: bool) -> Loaded:
        self._method = "env"
        if self.is_environment:  # the first of the chain; a session of botocore takes longer than all else
            return self._frozen(EnvProvider().load())
        self._method = ""
        session = self._session(is_first=is_first)
        credentials = self._found(session)
        if self._role is not None:
            self._method = "assume-role"
            role = self._role
            fetcher = AssumeRoleCredentialFetcher(
                session.create_client, credentials, role.arn, extra_args=role.arguments()
            )
            credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, self._method)
        return self._frozen(credentials)

    def _found(self, session: Session) -> Any:
        for provider in session.get_component("credential_provider").providers:
            self._method = provider.METHOD
            if (credentials := provider.load()) is not None:
                return credentials
        raise nothing_found(self._named_profile)

    def _frozen(self, credentials: Any) -> Loaded:
        # At this time they never look expired, so that botocore fetches them once. The host's clock may be wrong, and
        # it is the service that decides.
        credentials._time_fetcher = _long_ago  # noqa: SLF001 - a parameter of botocore's, for tests
        frozen = credentials.get_frozen_credentials()
        if (problem := check_credentials(frozen.access_key, frozen.secret_key, frozen.token)) is not None:
            raise failure(self._method, problem, "")
        expiry = getattr(credentials, "_expiry_time", None)
        seconds = None if expiry is None else expiry.timestamp() - self._clock.now()
        return Loaded(frozen, self._method, seconds)

    def _session(self, *, is_first: bool) -> Session:
        session = Session(profile=self._profile)
        check_profiles(session)
        if self._loader is None:
            self._loader = session.get_component("data_loader")
        session.register_component("data_loader", self._loader)  # it keeps botocore's own files, which do not change
        if self._region is not None:
            session.set_config_variable("region", self._region)
        retries = {"mode": "standard", "total_max_attempts": 3 if is_first else 1}
        session.set_default_client_config(
            Config(connect_timeout=3, read_timeout=8, retries=retries, proxies=self._proxies)
        )
        self._clock.install(session)
        resolver = session.get_component("credential_provider")
        reach_metadata_directly(resolver)
        assume_role = resolver.get_provider("assume-role")
        assume_role._prompter = _refuse_mfa  # noqa: SLF001 - a parameter of botocore's
        builder = assume_role._profile_provider_builder  # noqa: SLF001 - it makes the providers of source profiles
        builder._create_process_provider = partial(_with_process, builder._create_process_provider)  # noqa: SLF001 - the same
        for provider in resolver.providers:
            if provider.METHOD == _PROCESS:
                provider._popen = _Process  # noqa: SLF001 - a parameter of botocore's
        return session

    def _is_corrected(self, error: Exception) -> bool:
        """Return whether a service refused a signature for its time, which is known now."""
        if not isinstance(error, botocore.exceptions.ClientError):
            return False
        details = error.response.get("Error", {})
        refusal = service_error(str(details.get("Code", "")), str(details.get("Message", "")))
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return isinstance(refusal, ClockSkewError) and self._clock.correct(refusal, headers.get("date"))


def _long_ago() -> datetime:
    return datetime.fromtimestamp(0, UTC)


def _refuse_mfa(_prompt: str) -> NoReturn:
    raise mfa_needed()


def _with_process(make: Callable[[str], Any], profile_name: str) -> Any:
    provider = make(profile_name)
    provider._popen = _Process  # noqa: SLF001 - a parameter of botocore's
    return provider


class _Process(subprocess.Popen[bytes]):
    """The command of `credential_process`: without efo's stdin, and not for ever."""

    def __init__(self, arguments: list[str], **options: Any) -> None:
        super().__init__(arguments, stdin=subprocess.DEVNULL, **options)

    def communicate(self, _input: bytes | None = None, _timeout: float | None = None) -> tuple[bytes, bytes]:
        """Return what it prints. Raises ChainError if it fails, without what it wrote to stderr."""
        try:
            out, err = super().communicate(timeout=PROCESS_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            for pipe in (self.stdout, self.stderr):
                if pipe is not None:
                    pipe.close()
            self.wait()
            raise failure(_PROCESS, f"the command did not end within {PROCESS_SECONDS:g} s") from None
        if self.returncode:
            raise failure(_PROCESS, f"the command ended with status {self.returncode}")
        return out, err
