"""The options of format("kinesis"): those of the stream become settings of `efo run`, those of format("efo") stay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from efo.errors import ConfigurationError
from efo.settings import refuse_future
from efo_service.config.mistakes import expected, suggest
from efo_service.config.settings import Settings
from efo_service.config.streams import StreamSettings
from efo_service.object_store.url import StoreUrl
from efo_service.spark.source import subscription
from efo_service.spark.source.bounds import ENDING, STARTING, AtTime
from efo_service.spark.source.options import NAMES, Options, parse_options, root_of
from efo_service.spark_kinesis.other_connectors import hint

_SETTINGS: Final[Mapping[str, str]] = {
    "stream": "kinesis.stream",
    "region": "kinesis.region",
    "endpoint": "kinesis.endpoint_url",
    "caFile": "kinesis.ca_file",
    "profile": "kinesis.profile",
    "proxyUrl": "kinesis.proxy_url",
    "roleArn": "kinesis.role_arn",
    "externalId": "kinesis.external_id",
    "roleSessionName": "kinesis.role_session_name",
    "application": "consumer.application",
    "consumerName": "consumer.consumer_name",
    "consumerArn": "consumer.consumer_arn",
    "initialPosition": "consumer.initial_position",
    "readMode": "consumer.read_mode",
    "failoverSeconds": "leases.failover_seconds",
}
"""Options with names of their own, and the settings that they are."""
CONNECTION: Final = tuple(option for option, setting in _SETTINGS.items() if setting.startswith("kinesis."))
"""Those that say where the stream is, for a read and for a write."""
_PREFIX: Final = "efo."
_FORWARDED: Final = ("consumer", "leases", "relay", "kinesis", "service", "cloudwatch")
"""The tables of which `efo.<table>.<key>` sets a key."""
_INSTEAD: Final[Mapping[str, str]] = {
    "relay.sink": "the records go to the log, which the query reads",
    "relay.options": "the records go to the log, which the query reads",
    "relay.kafka": "the records go to the log, which the query reads",
    "relay.jsonl_file": "the records go to the log, which the query reads",
    "relay.jsonl_encoding": "the records go to the log, which the query reads",
    "relay.directory": "use the option log",
    "relay.store_options": "use the option storeOptions",
    "leases.path": "the leases are in the log's directory",
    "leases.worker_id": "each query has a worker id of its own",
    "leases.url": "it is a secret: set EFO_LEASES__URL in the driver's environment",
}
"""Settings that are no options, and why."""
_SERVICE: Final = ("log_level", "group_access", "drain_seconds")
"""The keys of [service] that mean something without a service."""
_CHECKPOINT_SECONDS: Final = 1.0
"""Time between two checkpoints: the end of AvailableNow waits for them."""
_LOG_LEVEL: Final = "warning"
_CONSUMER: Final = "efo-spark-"
"""What the names of fan-out consumers begin with."""
LEASES: Final = ".kinesis"
"""The directory of the leases in that of the log. Its name is none of a topic."""
_BETWEEN: Final = ("startingTimestamp", "endingTimestamp")
"""The options between which `read` reads."""


@dataclass(frozen=True)
class KinesisOptions:
    """The options, checked as far as it is the same for `read` and `readStream`.

    `tables`: the settings that were given. `log`: where the log is; None if no option says it. `others`: the options of
    format("efo"). `names`: all options that were set.
    """

    tables: Mapping[str, Mapping[str, Any]]
    log: str | None
    others: Mapping[str, str]
    names: frozenset[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        others = {name: text for name, text in self.others.items() if name != "storeOptions"}
        return self._reading("-", "-", others).columns

    def for_stream(self) -> tuple[Settings, Options]:
        """Return the settings of the relay, and what the query reads of its log. Raises ConfigurationError."""
        if self.log is None:
            raise ConfigurationError(
                'format("kinesis") needs the log between Kinesis and the query, a directory or a URL that executors'
                ' can read: .option("log", "/path/of/the/log")'
            )
        if names := self.names.intersection({*ENDING, "pushDownFilters"}):
            raise ConfigurationError(f"{min(names)} is for read, not for readStream: remove it")
        settings = self._settings(self.log)
        others = dict(self.others)
        if not self.names.intersection(STARTING):
            others["startingOffsets"] = "earliest"  # initialPosition says what comes into the log
        return settings, self._reading(self.log, settings.topic, others)

    def for_batch(self, directory: Path, name: str, now: float) -> tuple[Settings, Options, float]:
        """Return the settings of a relay into a new directory, what to read of it, and the end of the read.

        `name`: of this read, for its consumer. `now`: seconds since the epoch. Raises ConfigurationError.
        """
        reading = self._reading(str(directory), "-", self.others)
        if names := self.names.intersection({*STARTING, *ENDING}.difference(_BETWEEN)):
            raise ConfigurationError(
                f"{min(names)} has no meaning for read, whose log is new each time: use {' and '.join(_BETWEEN)}"
            )
        for taken in ("initialPosition", "consumerName", "consumerArn"):
            if taken in self.names:
                instead = "startingTimestamp" if taken == "initialPosition" else "it registers a consumer of its own"
                raise ConfigurationError(f"{taken} is for readStream: {instead}")
        start, end = (_milliseconds(bound) for bound in (reading.starting, reading.ending))
        if start is not None:
            refuse_future(start / 1000, now, "startingTimestamp")
            start = min(start, int(now * 1000))  # as far as clocks may differ, it means now
        until = now if end is None else end / 1000
        if until > now:
            raise ConfigurationError("endingTimestamp is in the future: use readStream, or an earlier time")
        if start is not None and start / 1000 > until:
            raise ConfigurationError("startingTimestamp is after endingTimestamp: nothing can be between them")
        position = None if start is None else datetime.fromtimestamp(start / 1000, UTC).isoformat()
        settings = self._settings(str(directory), batch=name, position=position)
        others = {"startingOffsetsByTimestampStrategy": "latest"} if start is not None else {}
        return settings, self._reading(str(directory), settings.topic, {**self.others, **others}), until

    def _reading(self, path: str, topic: str, others: Mapping[str, str]) -> Options:
        return parse_options({**others, "path": path, "subscribe": topic})

    def _settings(self, log: str, *, batch: str | None = None, position: str | None = None) -> Settings:
        root = root_of({**self.others, "path": log})
        place = str(root) if isinstance(root, StoreUrl) else str(Path(root).absolute())
        tables: dict[str, dict[str, Any]] = {"consumer": {}, "service": {"log_level": _LOG_LEVEL}}
        if not isinstance(root, StoreUrl):  # where each write has a price
            tables["consumer"]["checkpoint_seconds"] = _CHECKPOINT_SECONDS
        for name, table in self.tables.items():
            tables.setdefault(name, {}).update(table)
        consumer = tables["consumer"]
        application = consumer.setdefault("application", "log-" + hashlib.sha256(place.encode()).hexdigest()[:12])
        if batch is not None:
            application = consumer["application"] = f"{application}-{batch}"
            consumer["ephemeral"] = consumer.get("read_mode") != "polling" and consumer.get("consumer_arn") is None
        if position is not None:
            consumer["initial_position"] = position
        if consumer.get("consumer_arn") is None:
            consumer.setdefault("consumer_name", _CONSUMER + str(application))
        tables.setdefault("relay", {})["directory"] = str(root)
        if isinstance(root, StoreUrl):
            tables["relay"]["store_options"] = dict(root.options)
        leases = tables.setdefault("leases", {})
        if isinstance(root, StoreUrl):
            if leases.setdefault("store", "log") == "sqlite":
                raise ConfigurationError(
                    f"efo.leases.store: the log {root} is on an object store, where leases cannot be files: remove it,"
                    " for leases beside the log"
                )
        else:
            leases["path"] = str(Path(place) / LEASES / "leases.sqlite")
        return _validated(tables)


def parse(arguments: Mapping[str, str], environ: Mapping[str, str]) -> KinesisOptions:
    """Parse the options of format("kinesis"). Their names are case-insensitive. Raises ConfigurationError.

    `environ`: has the URL of a lease store on a server, which is a secret.
    """
    own = {name.lower(): name for name in (*_SETTINGS, "log", "path")}
    others = {name.lower(): name for name in NAMES if name not in {*subscription.OPTIONS, "path"}}
    tables: dict[str, dict[str, Any]] = {}
    logs: dict[str, str] = {}
    rest: dict[str, str] = {}
    for given, text in arguments.items():
        name = given.lower()
        if name.startswith(_PREFIX):
            _set(tables, _setting(name), text)
        elif own.get(name) in _SETTINGS:
            is_time = name == "initialposition" and text.strip().isdecimal()
            _set(tables, _SETTINGS[own[name]], _iso(text) if is_time else text)
        elif name in own:
            logs[name] = text
        elif name in others:
            rest[others[name]] = text
        else:
            raise ConfigurationError(f'format("kinesis") has no option {given!r}: {_hint(name, own, others)}')
    if "stream" not in tables.get("kinesis", {}):
        raise ConfigurationError('format("kinesis") needs the name or ARN of a stream: .option("stream", "orders")')
    if len(set(logs.values())) > 1:
        raise ConfigurationError("the option log and the path of load() are the same: remove one of them")
    if tables.get("leases", {}).get("store") in {"postgres", "redis"} and "EFO_LEASES__URL" in environ:
        tables["leases"]["url"] = environ["EFO_LEASES__URL"]
    names = {own.get(name.lower(), others.get(name.lower(), name)) for name in arguments}
    options = KinesisOptions(tables, next(iter(logs.values()), None), rest, frozenset(names))
    options.columns  # noqa: B018 - a property that raises
    return options


def kinesis_settings(options: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return settings of which [kinesis] is what the options of a sink say, and the names that say nothing of it.

    Their names are in lower case. Raises ConfigurationError.
    """
    own = {option.lower(): _SETTINGS[option] for option in CONNECTION}
    own |= {name: name.removeprefix(_PREFIX) for name in options if name.startswith(f"{_PREFIX}kinesis.")}
    tables: dict[str, dict[str, Any]] = {}
    for name in options:
        if name in own:
            _set(tables, own[name], options[name])
    return _validated(tables), [name for name in options if name not in own]


def _setting(name: str) -> str:
    """Return the setting that an option `efo.<table>.<key>` names."""
    setting = name.removeprefix(_PREFIX)
    table, _, key = setting.partition(".")
    for refused, why in _INSTEAD.items():
        if setting == refused or setting.startswith(refused + "."):
            raise ConfigurationError(f"{name}: {why}")
    if table not in _FORWARDED or not key:
        raise ConfigurationError(f"{name}: expected efo.<table>.<key> with one of the tables {', '.join(_FORWARDED)}")
    if table == "service" and key not in _SERVICE:
        raise ConfigurationError(f"{name}: there is no service: of this table, the keys are {', '.join(_SERVICE)}")
    return setting


def _set(tables: dict[str, dict[str, Any]], setting: str, text: str) -> None:
    table, _, key = setting.partition(".")
    values: dict[str, Any] = tables.setdefault(table, {})
    *inner, last = key.split(".")
    for name in inner:
        values = values.setdefault(name, {})
    if last == "proxy_url" and "@" in text:
        raise ConfigurationError(
            f"{setting}: a user and a password are secrets: set HTTPS_PROXY in the driver's environment"
        )
    if last in values:
        raise ConfigurationError(f"the setting {setting} is set by two options: remove one of them")
    values[last] = text


def _hint(name: str, own: Mapping[str, str], others: Mapping[str, str]) -> str:
    if name in {option.lower() for option in subscription.OPTIONS}:
        return "a query reads the whole stream that the option stream names: remove it"
    known = {**own, **others}
    if (elsewhere := hint(name)) is not None:
        return elsewhere
    if (plain := name.removeprefix("kinesis.")) in known:
        return f"here it is {known[plain]}"
    close = get_close_matches(name, known, 1)
    names = f'{", ".join((*_SETTINGS, "log"))}, efo.<table>.<key>, and those of format("efo")'
    return f"did you mean {known[close[0]]}?" if close else f"the options are {names}"


def _validated(tables: Mapping[str, Mapping[str, Any]]) -> Settings:
    try:
        return StreamSettings.model_validate(tables)
    except ValidationError as error:
        # `from None`: the inputs in pydantic's error could include a secret that was written in the wrong place.
        raise ConfigurationError("\n".join(_messages(error))) from None


def _messages(error: ValidationError) -> list[str]:
    options = {setting: option for option, setting in _SETTINGS.items()}
    result = []
    for detail in error.errors(include_url=False, include_input=False):
        setting = ".".join(str(part) for part in detail["loc"])
        name = options.get(setting, _PREFIX + setting)
        if detail["type"] == "extra_forbidden":
            table = detail["loc"][0]
            known = Settings.model_fields[str(table)].annotation
            result.append(f"{name}: unknown key{suggest(str(detail['loc'][-1]), getattr(known, 'model_fields', {}))}")
        else:
            result.append(f"{name}: {expected(detail['type'], detail['msg'])}")
    return result


def _iso(milliseconds: str) -> str:
    try:
        return datetime.fromtimestamp(int(milliseconds) / 1000, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return milliseconds  # refused as a position


def _milliseconds(bound: object) -> int | None:
    return bound.times if isinstance(bound, AtTime) and isinstance(bound.times, int) else None
