"""A real object store, through obstore: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure Blob.

obstore never repeats a request here. It would repeat a write whose answer was lost, and then report that the object
exists, which is true and misleads. Whoever writes looks first (efo_service.log.objects.writer), and waits longer.
All calls block, and release Python's lock meanwhile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies

from efo.errors import ConfigurationError
from efo.proxy import environment_proxy, parse_proxy
from efo.third_party_errors import reason_of
from efo_service.errors import UnavailableError
from efo_service.object_store.store import (
    ChangedError,
    ExistsError,
    Listed,
    StoredObject,
    UnchangedError,
    Version,
)
from efo_service.object_store.url import StoreUrl
from efo_service.relay.errors import StoreDeniedError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.session import Session
    from obstore import GetOptions, GetResult, PutMode, PutResult
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Credential

TIMEOUT: Final = 60.0
"""Seconds for a whole request, which may send or fetch a segment. A thread waits for it, and so does a cancellation."""
_CONNECT_SECONDS: Final = 5
_CREDENTIAL_SECONDS: Final = 60
"""How long obstore keeps credentials. Then it asks for them again: they are renewed long before they end."""
_STATUS: Final = re.compile(r"status code: (\d{3}) ?([A-Za-z ]*)")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,200})")
_OF_A_STORE: Final = re.compile(r"<Error>|<Code>|\"error\"")
"""What the refusals of object stores have. An answer without it comes from something in between, and passes."""
_PAGE: Final = re.compile(r"<(!doctype )?html\b", re.IGNORECASE)
_WRONG_PLACE: Final = ("NoSuchBucket", "ContainerNotFound", "UserNotFound", "NoSuchUpload", "bucket does not exist")
_DENIED: Final = frozenset({401, 403})
_LATER: Final = frozenset({408, 409, 425, 429})
"""Statuses after which a request may be made again, besides all from 500 on."""
_TRANSIENT_CODES: Final = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentChecksumMismatch"})
"""S3 answers these with status 400: a request was cut off or damaged on its way (S3 API reference, Error responses)."""
_DENIED_CODES: Final = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})
"""S3 answers these with status 400, too: the temporary credentials have ended."""


def open_store(url: StoreUrl) -> RemoteStore:
    """Return the store of a URL. Nothing is requested yet.

    Raises UnavailableError if obstore is not installed, and ConfigurationError if an option is wrong.
    """
    try:
        import obstore  # noqa: F401, PLC0415 - an extra, may not be installed
        from obstore.exceptions import BaseError  # noqa: PLC0415 - the same
    except ImportError as error:
        raise UnavailableError(
            f"{url} needs a client of object stores: pip install 'efo[service,object-store]'"
        ) from error
    try:
        return RemoteStore(url, _open(url))
    except (BaseError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{url}: {reason_of(error)}; check [relay] store_options") from None


def _open(url: StoreUrl) -> ObjectStore:
    from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415 - an extra, may not be installed

    from efo.aws.egress import find_authorities  # noqa: PLC0415 - slow to import, only if it is used

    options: dict[str, Any] = dict(url.options)
    client: ClientConfig = {
        "allow_http": bool(options.pop("allow_http", False)),
        "timeout": timedelta(seconds=float(options.pop("timeout_seconds", TIMEOUT))),
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
    }
    proxy_url, ca_file = options.pop("proxy_url", None), options.pop("ca_file", None)
    endpoint = str(options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or "https:")
    client.update(_proxy(endpoint.partition(":")[0].lower(), proxy_url))
    session = _find_aws(options, proxy_url) if url.scheme == "s3" else None
    authorities = find_authorities(session, ca_file, "store_options: ca_file")
    if not authorities.is_default:
        authorities.check()
        client["root_certificate"] = Path(authorities.path).read_bytes()
    common: dict[str, Any] = {
        "prefix": url.prefix or None,
        "client_options": client,
        "retry_config": _NO_RETRIES,
    }
    match url.scheme:
        case "s3":
            return S3Store(url.bucket, **common, **options)
        case "gs":
            if (endpoint := options.pop("endpoint", None)) is not None:
                options["base_url"] = endpoint
            return GCSStore(url.bucket, **common, **options)
        case "az":
            return AzureStore(url.bucket, **common, **options)


_NO_RETRIES: Final[RetryConfig] = {"max_retries": 0, "retry_timeout": timedelta(seconds=TIMEOUT)}


_METADATA: Final = "169.254.169.254,metadata.google.internal"
"""The metadata services of machines, which are never behind a proxy."""
_EVERYTHING: Final = "*,0.0.0.0/0,::/0"


def _proxy(scheme: str, proxy_url: str | None) -> ClientConfig:
    """Return the client's options for a proxy: that of the setting, or of the variable for this scheme.

    NO_PROXY is read by obstore: networks, too, are excluded. It would read ALL_PROXY by itself, and cannot be asked to
    use none: then a proxy is named, and everything excluded from it.
    """
    if proxy_url is None:
        proxy, excluded = environment_proxy(scheme), getproxies().get("no", "")
    else:
        proxy, excluded = parse_proxy(proxy_url, "store_options: proxy_url") if proxy_url else None, ""
    if proxy is None:
        return {"proxy_url": "http://127.0.0.1", "proxy_excludes": _EVERYTHING} if getproxies() else {}
    return {"proxy_url": proxy.url, "proxy_excludes": ",".join(filter(None, (_METADATA, excluded)))}


def _find_aws(options: dict[str, Any], proxy_url: str | None) -> Session:
    """Complete S3's options by what AWS's SDKs find: the region, and credentials of profiles, roles, containers."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - slow to import, only if it is used
    from botocore.session import Session  # noqa: PLC0415 - the same

    from efo.aws.credentials import CredentialSource  # noqa: PLC0415 - the same

    # The checksum lets the bucket have an object lock, which needs one, and S3 refuses what was damaged on its way.
    if options.pop("checksum", True):
        options["checksum_algorithm"] = "SHA256"
    profile = options.pop("profile", None)
    try:
        session = Session(profile=profile)
        found = os.environ.get("AWS_REGION") or session.get_config_variable("region")
    except BotoCoreError as error:
        raise ConfigurationError(f"the AWS configuration: {reason_of(error)}") from None
    if "region" not in options and found is not None:
        options["region"] = found
    source = CredentialSource(profile, options.get("region"), proxy_url=proxy_url)
    source.get_blocking()  # a mistake is reported at the start

    def provide() -> S3Credential:
        frozen = source.get_blocking()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(seconds=_CREDENTIAL_SECONDS),
        }

    options["credential_provider"] = provide
    return session


class RemoteStore:
    """See Store. `client`: obstore's store."""

    def __init__(self, url: StoreUrl, client: ObjectStore) -> None:
        self.url = url
        self.name = str(url)
        self._client = client

    def get(self, key: str, unless: Version | None = None) -> StoredObject | None:
        """Return an object, unless its version is known."""
        e_tag = None if unless is None else unless.e_tag
        return self._get(key, {} if e_tag is None else {"if_none_match": e_tag})

    def head(self, key: str, size: int) -> StoredObject | None:
        """Return the first bytes of an object. The log has no empty objects: of them, no store has a range."""
        return self._get(key, {"range": (0, size)})

    def _get(self, key: str, options: GetOptions) -> StoredObject | None:
        from obstore.exceptions import NotModifiedError  # noqa: PLC0415 - an extra, may not be installed

        def get() -> StoredObject:
            result: GetResult = self._client.get(key, options=options)
            content = bytes(result.bytes())
            meta = result.meta
            version = Version(meta["e_tag"], meta["version"])
            return StoredObject(content, version, meta["last_modified"].timestamp(), meta["size"])

        with self._errors("read", key):
            try:
                return get()
            except NotModifiedError:
                raise UnchangedError from None
            except FileNotFoundError as error:
                text = str(error)
                if _PAGE.search(text) or any(code in text for code in _WRONG_PLACE):
                    raise
                return None

    def create(self, key: str, content: bytes) -> Version:
        """Create an object."""
        return self._put(key, content, "create", ExistsError)

    def replace(self, key: str, content: bytes, version: Version) -> Version:
        """Replace an object."""
        known = {"e_tag": version.e_tag, "version": version.generation if self.url.scheme == "gs" else None}
        mode: Any = {name: value for name, value in known.items() if value is not None}
        return self._put(key, content, mode, ChangedError)

    def _put(
        self, key: str, content: bytes, mode: PutMode, refused: Callable[[], ExistsError | ChangedError]
    ) -> Version:
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415 - an extra

        with self._errors("write", key):
            try:
                result: PutResult = self._client.put(key, content, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                raise refused() from None
            except FileNotFoundError as error:
                # A condition on an object that does not exist: S3 may answer 404 to it.
                if mode == "create" or any(code in str(error) for code in _WRONG_PLACE):
                    raise
                raise refused() from None
        return Version(result["e_tag"], result["version"])

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        for key in keys:
            with self._errors("delete", key):
                try:
                    self._client.delete(key)
                except FileNotFoundError:
                    continue

    def keys(self, prefix: str) -> Iterator[Listed]:
        """Yield the keys below a prefix."""
        with self._errors("list", prefix):
            for page in self._client.list(prefix.rstrip("/") or None, chunk_size=1000):
                for one in page:
                    yield Listed(one["path"], one["size"])

    def folders(self, prefix: str) -> list[str]:
        """Return the names below a prefix that have keys below them."""
        with self._errors("list", prefix):
            found = self._client.list_with_delimiter(prefix.rstrip("/") or None)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    @contextmanager
    def _errors(self, action: str, key: str) -> Iterator[None]:
        """Translate obstore's errors. What is not known to be permanent is taken for a missing answer."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError  # noqa: PLC0415 - an extra

        try:
            yield
        except (BaseError, OSError, ValueError, RuntimeError) as error:
            where = f"cannot {action} {self.name}/{key}"
            status, reason = explain(str(error))
            code = match[1] if (match := _CODE.search(str(error))) else None
            if code in _TRANSIENT_CODES or _is_of_another(str(error), status):
                raise StoreUnavailableError(f"{where}: {reason}") from None
            is_denied = status in _DENIED or code in _DENIED_CODES
            if is_denied or isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
                raise StoreDeniedError(
                    f"{where}: {reason}; check the credentials, their rights (docs/log.md) and this machine's clock"
                ) from None
            if isinstance(error, FileNotFoundError):
                raise StoreError(f"{where}: {reason}; check the name of the bucket, and its region") from None
            if status is not None and 300 <= status < 500 and status not in _LATER:  # noqa: PLR2004 - HTTP's classes
                raise StoreError(f"{where}: {reason}; check [relay] directory and store_options") from None
            raise StoreUnavailableError(f"{where}: {reason}") from None
        except BaseException as error:
            # pyo3's error for a panic is no Exception, and has no importable name.
            if type(error).__name__ != "PanicException":
                raise
            raise StoreError(
                f"cannot {action} {self.name}/{key}: the client failed ({reason_of(error)}); check the endpoint, also"
                " in the environment (such as AWS_ENDPOINT_URL)"
            ) from None


def _is_of_another(text: str, status: int | None) -> bool:
    """Return whether an answer is of a proxy or the like: a page, or a refusal that says nothing."""
    if status is None or status in _DENIED or status == 404:  # noqa: PLR2004 - HTTP's; some stores say nothing there
        return _PAGE.search(text) is not None
    return _OF_A_STORE.search(text) is None


def explain(text: str) -> tuple[int | None, str]:
    """Return the HTTP status in the text of an error of obstore, and its reason in a line without a URL's query. Pure.

    The query of a URL may have a signature, and the text of an error may be several pages.
    """
    status = _STATUS.search(text)
    if status is None:
        return None, _first_line(text)
    parts = [f"{status[1]} {status[2].strip()}".strip()]
    parts += [match[1] for match in (_CODE.search(text), _MESSAGE.search(text)) if match]
    return int(status[1]), ": ".join(parts)


def _first_line(error: object) -> str:
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r"\?\S*", "?...", re.sub(r"//[^/\s]*@", "//...@", line))[:300]
