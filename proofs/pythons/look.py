"""Imports each module and public name of an installed efo, and prints one JSON object.

A program of its own, for an environment that has nothing else of this checkout. `missing`: how many modules need each
package that is not there, an extra's. `wrong`: modules whose import fails otherwise.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any


def look() -> dict[str, Any]:
    """Import everything; return what came of it."""
    missing: Counter[str] = Counter()
    found: dict[str, Any] = {"modules": 0, "names": 0, "wrong": []}
    for name in sorted(modules()):
        try:
            module = importlib.import_module(name)
            found["names"] += len([getattr(module, one) for one in getattr(module, "__all__", ())])
            found["modules"] += 1
        except ModuleNotFoundError as error:
            missing[str(error.name).partition(".")[0]] += 1
        except SystemExit as error:
            if error.code != os.EX_UNAVAILABLE:  # the command line has said which extra it needs
                found["wrong"].append(f"{name}: exits with {error.code}")
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            found["wrong"].append(f"{name}: {type(error).__name__}: {error}")
    return {**found, "missing": dict(missing)}


def modules() -> Iterator[str]:
    """Yield the modules that the distribution has, without those that run a program."""
    for path in importlib.metadata.files("efo") or ():
        if path.suffix == ".py" and path.stem != "__main__":
            yield path.with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


if __name__ == "__main__":
    json.dump(look(), sys.stdout)
