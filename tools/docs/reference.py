"""The reference pages that are made from the code: settings, commands, alerts, and the lines of the log."""

from __future__ import annotations

import ast
import inspect
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo
from rich.console import Console
from structlog.testing import capture_logs

from efo import events
from efo.telemetry.outages import OutageBegan, OutageChanged, OutageEnded, OutageGivenUp, Refused, System
from efo_service import cli
from efo_service.config.section import is_secret, section_of, variable
from efo_service.config.settings import Settings
from efo_service.telemetry import logs
from tools.docs.pages import ROOT
from tools.prometheus_rules import ALERTS

_SERVICE: Final = ROOT / "service" / "efo_service"
_LEVELS: Final = {10: "debug", 20: "info", 30: "warning", 40: "error"}
_TRIALS: Final = (None, "failed", "released")
"""Values of fields on which the level of an event may depend."""


def configuration() -> str:
    """Return the page of all settings."""
    return (
        "# Configuration\n\nEvery setting of `efo run` and `efo pipeline`, in the table of the TOML file to which it "
        "belongs. An environment variable goes before the file. Secrets are read from the environment alone. "
        "`efo check-config` "
        "prints what applies, and refuses what is wrong with its place.\n"
        + "".join(_table(name, field) for name, field in Settings.model_fields.items())
    )


def _table(name: str, field: FieldInfo) -> str:
    section = section_of(field)
    if section is None:
        raise TypeError(f"{name} is not a table of settings")
    rows = [_setting(name, key, item) for key, item in section.model_fields.items() if section_of(item) is None]
    inner = [_table(f"{name}.{key}", item) for key, item in section.model_fields.items() if section_of(item)]
    head = f"\n## `[{name}]`\n\n{_prose(section.__doc__)}\n\n| setting | default | meaning |\n|---|---|---|\n"
    return head + "".join(rows) + "".join(inner)


def _setting(table: str, key: str, field: FieldInfo) -> str:
    names = variable(*table.split("."), key)
    where = f"`{names}`, in the environment alone" if is_secret(field) else f"`{key}`<br>`{names}`"
    if field.is_required():
        default = "required"
    elif field.default_factory or field.default is None:
        default = f"none; such as `{field.examples[0]}`" if field.examples else "none"
    else:
        default = f"`{field.default}`" if str(field.default) else "empty"
    return f"| {where} | {_cell(default)} | {_cell(field.description or '')} |\n"


def command_line() -> str:
    """Return the page of all commands: what `efo COMMAND --help` prints."""
    names = ["", *(name for name in (*cli._GROUPS, *cli._HELP, "completion"))]  # noqa: SLF001 - the tables of the commands
    return "# Command line\n\nWhat `efo COMMAND --help` prints.\n" + "".join(map(_help, sorted(set(names))))


def _help(name: str) -> str:
    console = Console(file=io.StringIO(), width=110, force_terminal=False, color_system=None)
    cli.app.help_print(name.split(), console=console)
    file = console.file
    assert isinstance(file, io.StringIO)  # noqa: S101 - made above
    text = "\n".join(line.rstrip() for line in file.getvalue().strip().splitlines())
    return f"\n## `efo {name}`\n\n```text\n{text}\n```\n".replace("efo `", "efo`")


def alerts() -> str:
    """Return the page of all alerts."""
    head = (
        "# Alerts\n\nThe rules of [`config/prometheus/rules.yml`](../../config/prometheus/rules.yml). The "
        "[runbook](../runbook.md) says what to do about each.\n"
    )
    parts = "".join(
        f"\n## {alert.name}\n\n*{alert.severity}*, when it was true for {alert.wait}: {alert.summary}.\n\n"
        f"{alert.description}\n\n```text\n{alert.expr}\n```\n\n[What to do](../runbook.md#{alert.name.lower()})\n"
        for alert in ALERTS
    )
    return head + re.sub(r"\{\{ (.*?) \}\}", r"`{{ \1 }}`", parts)


def outage_lines() -> dict[str, str]:
    """Return the names of all lines about outages, and their fields."""
    cause = "throttled"  # it has a remedy
    with capture_logs() as lines:
        for system in get_args(System):
            logs.log_outage(OutageBegan(system, cause, "detail", "shard"))
            logs.log_outage(OutageChanged(system, cause, "before", "detail", "shard"))
            dropped = int(system == "cloudwatch")
            logs.log_outage(OutageEnded(system, cause, 1.0, 1, dropped))
            logs.log_outage(OutageGivenUp(system, cause, 1.0, 1, dropped))
        logs.log_outage(Refused("cloudwatch", cause, "detail", 1))
    return {line["event"]: ", ".join(name for name in line if name not in {"event", "log_level"}) for line in lines}


def log_lines() -> str:
    """Return the page of all lines that `efo run` logs."""
    rows = "".join(sorted(map(_event, get_args(events.Event))))
    others = "".join(
        f"| `{name}` | {level} | {fields} | `{path}` |\n" for name, level, fields, path in sorted(service_lines())
    )
    return (
        "# Log lines\n\n`efo run` writes one JSON object per line. All have `event`, `level`, `timestamp` (UTC) and, "
        "once it is known, `worker_id`. `[service] log_level` sets the lowest level. No line contains data or a "
        "partition key.\n\n## Diagnostic events\n\nWhat the library reports to every observer, `efo.events`. An "
        "event that belongs to an "
        "outage is only logged at debug.\n\n| event | level | fields | meaning |\n|---|---|---|---|\n"
        f"{rows}\n## Outages\n\nOne line when an outage begins, one when its cause changes, and one when it ends or is "
        "given up, however much fails in between.\n\n| event | level | fields |\n|---|---|---|\n"
        + "".join(f"| `{name}` | warning | {fields} |\n" for name, fields in outage_lines().items())
        + "\n## The service\n\n| event | level | fields | logged by |\n|---|---|---|---|\n"
        + others
    )


def _event(kind: type[Any]) -> str:
    fields = [name for name in kind.__struct_fields__ if name != "readings"]
    levels = sorted({_level(kind, name, value) for name in kind.__struct_fields__ for value in _TRIALS})
    name = logs._NAMES[kind]  # noqa: SLF001 - the table of the names
    level = " or ".join(_LEVELS[level] for level in levels)
    return f"| `{name}` | {level} | {', '.join(fields)} | {_cell(_prose(kind.__doc__))} |\n"


def _level(kind: type[Any], name: str, value: object) -> int:
    return logs.severity_of(kind(**{field: value if field == name else None for field in kind.__struct_fields__}))


def service_lines() -> Iterator[tuple[str, str, str, str]]:
    """Return name, level, fields and module of each line that the service's own code logs."""
    for path in sorted(_SERVICE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="debug" | "info" | "warning" | "error" | "exception" as level),
                    args=[ast.Constant(value=str() as name)],
                    keywords=keywords,
                ) if re.fullmatch(r"[a-z_]+", name):
                    fields = ", ".join(keyword.arg for keyword in keywords if keyword.arg)
                    yield name, level, fields, _module(path)


def _module(path: Path) -> str:
    return path.relative_to(_SERVICE.parent).with_suffix("").as_posix().replace("/", ".")


def _prose(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "").replace("\n\n", " ")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: Final = {
    "reference/configuration.md": ("every setting, its variable, default and meaning", configuration),
    "reference/cli.md": ("every command and its options", command_line),
    "reference/log.md": ("every line of the log, with its level and fields", log_lines),
    "reference/alerts.md": ("every alert, with its expression", alerts),
}
"""The pages and what they have, in the order of the site."""
