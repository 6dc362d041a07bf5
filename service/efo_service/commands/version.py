"""`efo version`."""

from __future__ import annotations

import json
import platform
import sys

from efo.protocol.native import DECODER
from efo_service.commands.options import Json
from efo_service.version import VERSION, commit, version_text


def version(*, as_json: Json = False) -> None:
    """Print the version, and the commit that it was built from."""
    values = {"efo": VERSION, "commit": commit(), "python": platform.python_version(), "decoder": DECODER.detail}
    text = json.dumps(values) if as_json else f"efo {version_text()}"
    sys.stdout.write(text + "\n")
