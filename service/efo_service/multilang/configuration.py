"""From a properties file of KCL's MultiLangDaemon to efo's settings. Pure, but for the environment over them.

Java's format of properties: `key = value`, comments, continued lines, escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from efo.checks import shown
from efo.errors import ConfigurationError
from efo_service.config.loading import load_tables
from efo_service.config.streams import Configuration
from efo_service.multilang.messages import Protocol
from efo_service.multilang.properties import OPTIONS, POLLING, credentials_of
from efo_service.multilang.reader import ChildSettings, OnChildFailure

_DEFAULTS: Final[Mapping[str, Any]] = {
    "consumer.initial_position": "latest",
    "consumer.checkpoint_seconds": 60.0,
    "leases.store": "dynamodb",
    "cloudwatch.level": "detailed",
    "relay.sink": "jsonl",
}
"""What KCL does without a property. Checkpoints are saved when a child asks for them; the interval is for the rest, and
for how long a shard may be without one until /status calls it a problem. No sink is opened, and this one keeps no
positions, so that shards can be sought on the page."""
_NO_LIMIT: Final = 2**31 - 1
_CREDENTIALS: Final = ("awscredentialsprovider", "awscredentialsproviderdynamodb", "awscredentialsprovidercloudwatch")
_EMPTY_SECONDS: Final = 1.0
"""KCL's idleTimeBetweenReadsInMillis."""

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PAIR: Final = re.compile(r"((?:\\.|[^\\\s:=])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


@dataclass(frozen=True, slots=True)
class Translated:
    """What a properties file means. `notes`: what the user should know of it, a sentence for each property."""

    configuration: Configuration
    children: ChildSettings
    notes: tuple[str, ...]


def translate(
    text: str,
    name: str,
    *,
    protocol: Protocol = 2,
    on_failure: OnChildFailure = "stop",
    log_level: str | None = None,
) -> Translated:
    """Return what a properties file means. `name`: of the file, for errors.

    `log_level`: of efo's own log. EFO_<SECTION>__<KEY> in the environment goes before the file. Raises
    ConfigurationError, which names every wrong property with the reason.
    """
    try:
        properties = properties_of(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    values = {key.lower(): value for key, value in properties.items() if value}
    problems, notes = _looked_at(properties)
    converted = _converted(values, problems)
    settings = dict(_DEFAULTS) | {OPTIONS[key].setting: value for key, value in converted.items()}
    settings.pop("", None)
    _combine(settings, values, converted)
    for key in _CREDENTIALS:
        if key in values:
            found, note = credentials_of(OPTIONS[key], values[key], problems)
            settings |= found
            notes += note
    if "kinesis.role_arn" in settings and _CREDENTIALS[1] not in values:
        problems.append(
            "AwsCredentialsProvider: KCL's lease table is in the account of this role, and efo assumes a role for"
            " Kinesis alone: use a profile with role_arn, or set AwsCredentialsProviderDynamoDB too"
        )
    problems += _missing(values)
    if problems:
        raise ConfigurationError("\n".join(f"{name}: {problem}" for problem in problems))
    if log_level is not None:
        settings["service.log_level"] = log_level
    configuration = load_tables(_tables(settings))
    return Translated(configuration, _children(values, converted, protocol, on_failure), tuple(notes))


def _looked_at(properties: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return what is refused, and notes on what has another effect, or none."""
    problems, notes = [], []
    for key in properties:
        option = OPTIONS.get(key.lower())
        if option is None:
            near = get_close_matches(key.lower(), OPTIONS, 1)
            hint = f": did you mean {OPTIONS[near[0]].name}?" if near else ""
            if key.lower().startswith(("kinesisclient.", "dynamodbclient.", "cloudwatchclient.")):
                problems.append(f"{key}: efo has clients of its own; of this, it knows endpointOverride and region")
            else:
                notes.append(f"{key} is no property of KCL, and has no effect{hint}")
        elif option.effect == "refused":
            problems.append(f"{key}: {option.note.replace('`', '')}")
        elif option.effect == "no effect":
            notes.append(f"{option.name} has no effect: {option.note.replace('`', '')}")
        elif option.effect == "mapped" and key.lower() not in _CREDENTIALS:
            notes.append(f"{option.name}: {option.note.replace('`', '')}")
    return problems, notes


def _converted(values: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Return the values of what has an effect. Adds to `problems`."""
    converted = {}
    for key, value in values.items():
        option = OPTIONS.get(key)
        if option is None or option.effect in {"refused", "no effect"} or key in _CREDENTIALS:
            continue
        try:
            converted[key] = option.convert(value)
        except (ValueError, OverflowError, OSError) as error:
            reason = error if type(error) is ValueError else "it is out of range"
            problems.append(f"{option.name}={shown(value)}: {reason}")
    return converted


def _combine(settings: dict[str, Any], values: Mapping[str, str], converted: Mapping[str, Any]) -> None:
    """Let properties that say the same thing have KCL's order."""
    for key in ("timestampatinitialpositioninstream", "initialpositioninstreamextended"):
        if key in converted:
            settings["consumer.initial_position"] = converted[key]
    if "streamarn" in values:
        settings["kinesis.stream"] = values["streamarn"]
    mode = converted.get("retrievalmode", "default")
    if mode == "default":
        polled = any(key in values or f"pollingconfig.{key}" in values for key in POLLING)
        mode = "polling" if polled else "fanout"
    settings["consumer.read_mode"] = mode
    if mode == "polling":
        settings.pop("consumer.consumer_arn", None)
    limits = [converted.get(key, 0) for key in ("maxleasesforworker", "maxactivethreads")]
    settings.pop("leases.max_leases", None)
    if most := min((limit for limit in limits if 0 < limit < _NO_LIMIT), default=0):
        settings["leases.max_leases"] = most
    if settings.get("service.drain_seconds") == 0:
        del settings["service.drain_seconds"]


def _missing(values: Mapping[str, str]) -> list[str]:
    missing = [] if "executablename" in values else ["executableName is missing: the program that processes records"]
    if "applicationname" not in values:
        missing.append("applicationName is missing: the name of the application, and of its lease table")
    if not {"streamname", "streamarn"} & values.keys():
        missing.append("streamName is missing: the stream to read, or streamArn")
    return missing


def _children(
    values: Mapping[str, str], converted: Mapping[str, Any], protocol: Protocol, on_failure: OnChildFailure
) -> ChildSettings:
    idle = converted.get("idletimebetweenreadsinmillis") or converted.get("pollingconfig.idletimebetweenreadsinmillis")
    timeout = converted.get("timeoutinseconds", 0)
    most = converted.get("maxrecords") or converted.get("pollingconfig.maxrecords")
    return ChildSettings(
        tuple(values["executablename"].split()),
        float(timeout) if timeout > 0 else None,
        most if most and most > 0 else None,
        (idle or _EMPTY_SECONDS) if converted.get("callprocessrecordsevenforemptyrecordlist") else None,
        protocol,
        on_failure,
    )


def _tables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their paths as tables of tables."""
    tables: dict[str, Any] = {}
    for path, value in settings.items():
        *sections, key = path.split(".")
        table = tables
        for section in sections:
            table = table.setdefault(section, {})
        table[key] = value
    return tables


def properties_of(text: str) -> dict[str, str]:
    """Return the values by their keys; of a key that is there twice, the last, as in Java.

    Values are stripped of blanks at their ends, which Java keeps. Raises ConfigurationError, with the line's number.
    """
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        if _BAD_ESCAPE.search(line):
            raise ConfigurationError(f"line {number}: \\u needs four hexadecimal digits")
        match = _PAIR.match(line)
        if match is not None and match[1]:
            values[_unescaped(match[1])] = _unescaped(match[2]).strip()
    return values


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are no comments, with their numbers; those that a backslash continues as one."""
    held, began = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = natural.lstrip(" \t\f")
        if not held and (not line or line[0] in "#!"):
            continue
        began = began if held else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            held += line[:-1]
            continue
        yield began, held + line
        held = ""
    if held:
        yield began, held


def _unescaped(text: str) -> str:
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else _escaped_by(found[2] or ""), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # Java writes an emoji as two escapes


def _escaped_by(letter: str) -> str:
    return _ESCAPES.get(letter, letter)
