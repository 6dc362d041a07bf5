"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

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

Json = Annotated[bool, Parameter(name="--json", negative="", help="Write JSON.")]
