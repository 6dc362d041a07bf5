"""The base class and the value types of the configuration's sections."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from efo.checks import is_clean, shown
from efo.definitions import default_of, definition_of
from efo.deprecations import with_new_names
from efo.errors import ConfigurationError
from efo.proxy import parse_proxy, without_credentials
from efo.third_party_errors import reason_of
from efo_service.object_store.url import is_url


def _check_endpoint(value: str) -> str:
    try:
        is_endpoint = (
            re.fullmatch(r"https?://[^/\s@?#]+/?", value) and urlsplit(value).hostname and urlsplit(value).port != 0
        )
    except ValueError:  # the port is not a number or too large, or the brackets contain no IPv6 address
        is_endpoint = False
    if not is_endpoint:
        raise ValueError("not an endpoint: expected https://HOST[:PORT], without path or credentials")
    return value


_DIRECTORY: Final[ContextVar[Path | None]] = ContextVar("directory", default=None)


@contextmanager
def relative_to(directory: Path) -> Iterator[None]:
    """Make relative paths of the settings that are validated in this block relative to a directory, and absolute."""
    token = _DIRECTORY.set(directory)
    try:
        yield
    finally:
        _DIRECTORY.reset(token)


def absolute(path: str | Path) -> Path:
    """Return a path of a setting as it is used. Nothing is resolved: symbolic links may change while efo runs."""
    directory = _DIRECTORY.get()
    return Path(path) if directory is None else directory / path


def _check_path(value: object) -> object:
    """Refuse what no file system takes as a path, before anything looks for it. Make it absolute."""
    if isinstance(value, (str, Path)) and str(value) not in {"", _STDOUT}:
        try:
            Path(value).lstat()
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
                reason = reason_of(error)
                raise ValueError(f"{shown(str(value))} is not a path: {reason}") from None
        return absolute(value)
    return value


def _check_log_directory(value: object) -> object:
    """Keep a URL as text, and make all else a path."""
    if isinstance(value, str):
        return value if is_url(value) else _check_path(value.removeprefix("file://"))
    return _check_path(value)


def _as_path(value: str | Path) -> str | Path:
    return value if isinstance(value, Path) or is_url(value) else Path(value)


def _check_location(value: str) -> str:
    return value if _SCHEME.match(value) else str(absolute(value))


class ProxyValue(SecretStr):
    """The URL of an HTTP proxy. Its user and password are not shown; in the file they are refused."""

    def _display(self) -> str:
        return without_credentials(self.get_secret_value())


def _check_proxy(value: ProxyValue) -> ProxyValue:
    if text := value.get_secret_value():  # empty: no proxy
        try:
            parse_proxy(text)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
    return value


ProxyUrl = Annotated[ProxyValue, AfterValidator(_check_proxy), WithJsonSchema({"type": "string"})]


def proxy_text(*values: ProxyValue | None) -> str | None:
    """Return the first of these settings that is set, as an argument of the library; None: as the environment says."""
    return next((value.get_secret_value() for value in values if value is not None), None)


_STDOUT: Final = "-"
"""Stands for stdout where a file is expected."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_UNCLEAN: Final = (
    "the value has white space around it, or control characters: a value made with `echo` ends with a newline"
)


def _check_text(value: str) -> str:
    if not is_clean(value):
        raise ValueError(_UNCLEAN)
    return value


Text = Annotated[str, AfterValidator(_check_text)]
"""A text without blanks around it and without control characters."""
LocalPath = Annotated[Path, BeforeValidator(_check_path)]
LogDirectory = Annotated[Path | str, BeforeValidator(_check_log_directory), AfterValidator(_as_path)]
"""A directory, or the URL of a log on an object store as a str."""
HomeDirectory = Annotated[Path, BeforeValidator(_check_path), AfterValidator(lambda path: _DIRECTORY.get() or path)]
"""The directory to which relative paths are relative, as it was found before other settings were looked at."""
Location = Annotated[str, Field(min_length=1), AfterValidator(_check_location)]
"""A directory, or a URI that Spark resolves. It is not a Path, which would collapse the two slashes of a URI."""
ExistingFile = Annotated[FilePath, BeforeValidator(_check_path)]
Endpoint = Annotated[str, AfterValidator(_check_endpoint)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


PREFIX = "EFO_"


class Section(BaseModel):
    """One table of the file. Its docstring and the descriptions of its fields are the comments of efo.full.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _with_new_names(cls, values: object) -> object:
        try:
            return with_new_names(cls.__name__, values) if isinstance(values, dict) else values
        except ConfigurationError as error:
            raise ValueError(str(error)) from None

    @field_validator("*", mode="after")
    @classmethod
    def _is_clean(cls, value: object) -> object:
        """Refuse a secret that was copied with a newline: whatever uses it would show it in an error."""
        options = value if isinstance(value, dict) else {}
        secrets = [value.get_secret_value()] if isinstance(value, SecretStr) else []
        secrets += [text for name, text in options.items() if isinstance(text, str) and is_credential(name, text)]
        if not all(is_clean(secret) for secret in secrets):
            raise ValueError(_UNCLEAN)
        return value


class Reached(Section):
    """What the sections of AWS's services share."""

    endpoint_url: Endpoint | None = Field(
        None,
        description="Endpoint to use instead of the region's own, for example a VPC endpoint.",
        examples=["https://127.0.0.1:4567"],
    )
    ca_file: ExistingFile | None = Field(
        None,
        description="PEM file of certificate authorities to trust instead of the system's.",
        examples=["ca.pem"],
    )


def defined(kind: type, name: str, **other: Any) -> Any:
    """Return the field of a setting that is defined elsewhere: its default, bounds and sentence are those.

    `kind`: the dataclass that defines it, see `efo.definitions`. `other`: arguments of pydantic's Field.
    """
    one = next(one for one in fields(kind) if one.name == name)
    definition = definition_of(one)
    if definition is None:
        raise TypeError(f"{kind.__name__}.{name} has no definition")
    bounds: dict[str, Any] = {"gt": definition.above, "ge": definition.least, "le": definition.most}
    if "float" in str(one.type):
        bounds["allow_inf_nan"] = definition.infinite
    options = {**{name: bound for name, bound in bounds.items() if bound is not None}, **other}
    examples = None if definition.example is None else [definition.example]
    default: Any = default_of(one)
    return Field(default, description=definition.sentence, examples=examples, **options)


def variable(*names: str) -> str:
    """Return the environment variable of a setting. `names`: its tables and its key."""
    return PREFIX + "__".join(names).upper()


def section_of(field: FieldInfo) -> type[Section] | None:
    """Return the section that a field holds, None if the field is a plain setting."""
    return next((kind for kind in _types(field) if isinstance(kind, type) and issubclass(kind, Section)), None)


def is_secret(field: FieldInfo) -> bool:
    """Return whether a setting is a secret, which may be set in the environment but not in the file."""
    return SecretStr in _types(field)


def is_proxy(field: FieldInfo) -> bool:
    """Return whether a setting is the URL of a proxy, which may have credentials in the environment alone."""
    return any(kind is ProxyValue or ProxyValue in get_args(kind) for kind in _types(field))


def _types(field: FieldInfo) -> tuple[Any, ...]:
    return (field.annotation, *get_args(field.annotation))


# No list of the credentials among options can be complete. What is wrongly taken for one can be set in the environment.
_NAME: Final = re.compile(
    r"(?:secret|passw|passphrase|token|credential|authorization|jaas|(?<![a-z])bearer(?![a-z])"
    r"|(?:access|private|api|client|shared|signing|hmac)[._-]?key|connection[._-]?string"
    r"|(?:account|encryption|keystore)[._-]?key(?![a-z])|(?<![a-z])(?:sas|pass|pwd)(?![a-z]))(?!s?[._-]?provider)",
    re.IGNORECASE,
)
"""Option names that refer to a credential. The provider of a credential is a class, and not matched."""
_NOT_THE_CREDENTIAL: Final = re.compile(
    r"(?:class|type|path|file|location|ur[il]|endpoint|binding|enabled|mechanism|algorithm|regex|ratio|wait|[._-]ms)$",
    re.IGNORECASE,
)
"""Suffixes of option names that describe a credential but do not contain it."""
_VALUE: Final = re.compile(
    r"://[^/\s:@]*:[^/\s@]+@|[?&]sig=|(?:passw(?:or)?d|secret|token|(?:access|account)key)\s*=", re.IGNORECASE
)
"""A credential within a value: USER:PASSWORD@ in a URL, or password= as in JAAS, JDBC and Java options."""


def is_credential(name: str, value: str) -> bool:
    """Return whether an option is a credential or has one in its value. An ARN only names a key."""
    if _VALUE.search(value):
        return True
    return bool(_NAME.search(name)) and not _NOT_THE_CREDENTIAL.search(name) and not value.startswith("arn:")
