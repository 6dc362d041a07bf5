"""`efo healthcheck` of a healthy service, without the libraries of the command line and of the configuration.

They take ten times the CPU time of the request. Whatever is unusual, from an unknown option to a service that is not
ready, is left to the command, which finds the mistake and explains it.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from efo.text import decode
from efo_service.errors import UnavailableError
from efo_service.web.probe import ServiceAddress

DEFAULTS: Final[Mapping[str, Any]] = {"host": "127.0.0.1", "port": 8080}
"""Those of the configuration, whose module is slow to import."""
_HEALTHY: Final = {"/livez": "alive", "/readyz": "ready"}


def ask(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> str | None:
    """Return what `efo healthcheck` writes with these arguments, or None if that command has to do it.

    It has to unless the service is healthy, and `[service] host`, `port` and `certificate_file` are plain settings.
    """
    path, config, as_json = "/livez", environ.get("EFO_CONFIG"), False
    rest = iter(arguments)
    for argument in rest:
        match argument:
            case "--ready":
                path = "/readyz"
            case "--json":
                as_json = True
            case "--config" | "-c":
                config = next(rest, None)
            case _:
                return None
    try:
        status, body = _address(config, environ).get(path)
        response = json.loads(body)
    except (OSError, ValueError, TypeError, RecursionError, UnavailableError):
        return None
    if status != 200 or not isinstance(response, dict) or response.get("status") != _HEALTHY[path]:  # noqa: PLR2004
        return None
    return body if as_json else _HEALTHY[path]


def _address(config: str | None, environ: Mapping[str, str]) -> ServiceAddress:
    """Return where the service is. Raises ValueError, TypeError and OSError."""
    tables = tomllib.loads(decode(Path(config).read_bytes())) if config else {}
    service = {**DEFAULTS, **tables.get("service", {})}
    for name, value in environ.items():
        match name.upper():
            case "EFO_SERVICE__HOST":
                service["host"] = value
            case "EFO_SERVICE__PORT":
                service["port"] = value
            case "EFO_SERVICE__CERTIFICATE_FILE":
                service["certificate_file"] = value
            case "EFO_SERVICE":
                raise ValueError("it may hold the whole section")
    certificate = service.get("certificate_file")
    return ServiceAddress(
        str(service["host"]), int(str(service["port"])), certificate=Path(certificate) if certificate else None
    )
