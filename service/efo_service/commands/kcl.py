"""`efo kcl`: runs what KCL's MultiLangDaemon runs, from its properties file."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import structlog
import trio
from cyclopts import Parameter

from efo.errors import ConfigurationError
from efo.text import other_encoding, without_mark
from efo_service import app
from efo_service.commands.run import failure_logged
from efo_service.errors import UsageError
from efo_service.exit_codes import Exit
from efo_service.memory import settle_memory
from efo_service.multilang.configuration import translate
from efo_service.multilang.messages import Protocol
from efo_service.multilang.opening import parts_of
from efo_service.multilang.reader import OnChildFailure
from efo_service.telemetry import logs
from efo_service.telemetry.sdk import telemetry
from efo_service.workers.supervisor import with_worker_id

_ROOT: Final = re.compile(r"<root\b[^>]*\blevel\s*=\s*[\"'](\w+)[\"']", re.IGNORECASE)
_LEVELS: Final = {"all": "debug", "trace": "debug", "debug": "debug", "info": "info", "warn": "warning"}


def kcl(
    properties_file: Annotated[Path | None, Parameter(help="The properties file, as MultiLangDaemon takes it.")] = None,
    /,
    *,
    properties: Annotated[
        Path | None, Parameter(name=("--properties", "--properties-file", "-p"), help="The properties file.")
    ] = None,
    log_configuration: Annotated[
        Path | None,
        Parameter(name=("--log-configuration", "-l"), help="A logback.xml: only the level of its root is used."),
    ] = None,
    protocol: Annotated[
        Protocol, Parameter(help="1: `shutdown` with a reason, for clients of KCL 1; 2: `leaseLost` and `shardEnded`.")
    ] = 2,
    on_child_failure: Annotated[
        OnChildFailure,
        Parameter(help="When a child fails: stop, as KCL's daemon does, or isolate its shard and try again later."),
    ] = "stop",
) -> Exit:
    """Run the record processor of a properties file of KCL's MultiLangDaemon, until SIGTERM or Ctrl-C."""
    path = properties or properties_file
    if path is None:
        raise UsageError("efo kcl needs a properties file: efo kcl --properties app.properties")
    level = None if log_configuration is None else _level_of(_read(log_configuration))
    translated = translate(_read(path), str(path), protocol=protocol, on_failure=on_child_failure, log_level=level)
    configuration = translated.configuration
    logs.name_worker(configuration.worker_id)
    logs.configure(configuration.service.log_level, sys.stdout)
    log = structlog.get_logger()
    for note in translated.notes:
        log.info("property", note=note)
    with failure_logged(), with_worker_id(configuration) as configuration:
        logs.name_worker(configuration.worker_id)
        settle_memory()
        with telemetry(configuration.worker_id or "") as sdk:
            trio.run(partial(app.run, configuration, sdk, parts=parts_of(translated.children)))
    return Exit.OK


def _read(path: Path) -> str:
    """Return a file's text: UTF-8, or Latin-1, which Java takes such files for. Raises ConfigurationError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot read the file: {error.strerror}") from error
    if (encoding := other_encoding(content)) is not None:
        raise ConfigurationError(f"{path}: it is {encoding} text: save it as UTF-8")
    try:
        return without_mark(content).decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _level_of(logback: str) -> str | None:
    """Return the level of logback's root, as one of efo's; None if the file has none."""
    found = _ROOT.search(logback)
    return None if found is None else _LEVELS.get(found[1].lower(), "error")
