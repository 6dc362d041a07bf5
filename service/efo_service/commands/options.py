"""Options and optional packages that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from efo_service.errors import UnavailableError

ConfigFile = Annotated[
    Path | None,
    Parameter(
        name=["--config", "-c"],
        env_var="EFO_CONFIG",
        help="TOML file (optional). Environment variables EFO_<SECTION>__<KEY> override it.",
    ),
]

StreamName = Annotated[
    str | None,
    Parameter(name=["--stream"], help="The stream, by its name in [streams]. Default: the only one of the file."),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application, its stream and its leases: those of a configuration, or of a program that uses the library."""

    config: ConfigFile = None
    stream: Annotated[
        str | None,
        Parameter(name=["--stream"], help="The stream: its name in [streams], its name or its ARN. Default: the only."),
    ] = None
    application: Annotated[
        str | None,
        Parameter(name=["--application"], help="Name of the application. Default: [consumer] application."),
    ] = None
    leases: Annotated[
        str | None,
        Parameter(
            name=["--leases"],
            help="The lease store, as the library takes it: a file of SQLite, dynamodb:TABLE, postgresql://... or"
            " redis://... Default: that of [leases].",
        ),
    ] = None


CONFIGURED: Final = Application()

Json = Annotated[bool, Parameter(name="--json", negative="", help="Write JSON.")]


_FAKE_PACKAGES: Final = ("cbor2", "trustme")  # and h11, which the extras `service` and `cli` install too


def require_fake() -> None:
    """Raise UnavailableError if a package that FakeKinesis needs is not installed.

    FakeKinesis imports some of them only when a client needs them, which is too late for a clear error.
    """
    try:
        for module in _FAKE_PACKAGES:
            import_module(module)
    except ImportError as error:
        raise UnavailableError(
            f"a package that FakeKinesis needs is missing ({error}): pip install 'efo[cli]'"
        ) from error
