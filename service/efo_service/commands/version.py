"""`efo version`."""

from __future__ import annotations

import json
import platform
import sys

from efo_service.commands.options import Json
from efo_service.version import VERSION


def version(*, as_json: Json = False) -> None:
    """Print the version."""
    text = json.dumps({"efo": VERSION, "python": platform.python_version()}) if as_json else f"efo {VERSION}"
    sys.stdout.write(text + "\n")
