"""What operators read and run: names in stores, files, logs, packages and tables of others."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

import psycopg
import pymysql
import redis

from efo.testing.faults.kinds import Refuse
from efo.testing.faults.script import When
from proofs.attacks.programs import STREAM, Ended, World, world
from proofs.local_servers.mariadb import serve_mariadb
from proofs.local_servers.postgres import serve_postgres
from proofs.local_servers.redis import serve_redis
from proofs.paths import ROOT
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("operators", seconds=240)

EVIL: Final = "\x1b]0;owned\x07evil\x1b[2J\r\n\x9b2J\u202e\x7f"
SHARD: Final = "shardId-000000000000"
_INTERNAL: Final = 70
_CRASHES: Final = "Traceback (most recent call last)"


def _clean(*ended: Ended) -> bool:
    """Return whether commands ended without a crash, and wrote nothing that changes a terminal."""
    return all(
        each.status not in {None, _INTERNAL}
        and _CRASHES not in each.err
        and all(line.isprintable() for line in (each.out + each.err).split("\n"))
        for each in ended
    )


def _outcome(ended: Sequence[Ended], is_right: object) -> Outcome:
    return Outcome(f"exits {[each.status for each in ended]}", bool(is_right) and _clean(*ended))


_LEASES: Final = """
async def main():
    async with efo.open_lease_store("leases.sqlite", "efo", "orders") as store:
        for lease in LEASES:
            await store.create(lease)
trio.run(main)
"""


def _create(here: World, leases: str) -> None:
    here.run(_LEASES.replace("LEASES", leases))


@cases.case("each command escapes them", name="a lease store with names that change a terminal")
def _() -> Outcome:
    with world() as here:
        lease = f"efo.leases.Lease({EVIL!r}, efo.Checkpoint('5'), owner={EVIL!r}, parents=({EVIL!r},), counter=3)"
        _create(here, f"[{lease}]")
        commands = [
            ("leases", "list"),
            ("leases", "show", EVIL),
            ("leases", "show", EVIL + "x"),
            ("leases", "export"),
            ("leases", "release", EVIL, "--yes"),
            ("leases", "reset", EVIL, "--to", "trim_horizon", "--yes"),
            ("shards",),
            ("leases", "delete", EVIL, "--yes"),
        ]
        ended = [here.efo(*command) for command in commands]
        named = [each for command, each in zip(commands, ended, strict=True) if command != ("shards",)]
        return _outcome(ended, all("evil" in each.out + each.err for each in named))


@cases.case("refused, naming the key; nothing is written", name="an import of keys that are no ids of shards")
def _() -> Outcome:
    with world() as here:
        _create(here, f"[efo.leases.Lease({SHARD!r}, efo.Checkpoint('5'))]")
        exported = json.loads(here.efo("leases", "export").out)
        here.efo("leases", "delete", "--all", "--yes")
        ended = []
        row = exported["leases"][0]
        rows = [
            {**row, "lease_key": EVIL},
            {**row, "lease_key": "x" * 10_000},
            {**row, "parent_shard_ids": [EVIL]},
            {**row, "checkpoint": EVIL},
            {**row, "lease_counter": 2**80},
            {**row, "latest_at": 1e300},
        ]
        for number, bad in enumerate(rows):
            file = here.home / f"{number}.json"
            file.write_text(json.dumps({**exported, "leases": [row, bad]}))
            ended.append(here.efo("leases", "import", str(file), "--yes"))
        deep = here.home / "deep.json"
        deep.write_text('{"version":1,"application":"efo","stream":"orders","leases":' + "[" * 100_000)
        ended.append(here.efo("leases", "import", str(deep), "--yes"))
        left = _leases(here)
        return _outcome(ended, not left and all(each.status for each in ended))


@cases.case("each is refused with a sentence", name="rows of a SQLite lease store with wrong types")
def _() -> Outcome:
    with world() as here:
        _create(here, f"[efo.leases.Lease({SHARD!r}, efo.Checkpoint('5'))]")
        ended = []
        with closing(sqlite3.connect(here.home / "leases.sqlite", isolation_level=None)) as database:
            [(table,)] = [
                (name,)
                for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                if any(column[1] == "checkpoint" for column in database.execute(f"PRAGMA table_info({name})"))
            ]
            for column, value in [
                ("checkpoint", EVIL),
                ("checkpoint", b"\xff" * 100),
                ("checkpoint", "9" * 100_000),
                ("lease_counter", "many"),
                ("parent_shard_ids", "[" * 100_000),
                ("parent_shard_ids", '{"a": 1}'),
                ("latest_at", "nan"),
            ]:
                [(before,)] = database.execute(f"SELECT {column} FROM {table}").fetchall()  # noqa: S608 - our own names
                try:
                    database.execute(f"UPDATE {table} SET {column} = ?", (value,))  # noqa: S608 - the same
                except sqlite3.IntegrityError:
                    continue  # the table refuses it
                ended.append(here.efo("leases", "list"))
                database.execute(f"UPDATE {table} SET {column} = ?", (before,))  # noqa: S608 - the same
        return _outcome(ended, all(each.status and len(each.err) < 3000 for each in ended))


# --- the log -------------------------------------------------------------------------------------------------------


def _catalogs(here: World) -> None:
    """Make topics whose catalogs and readers are hostile."""
    root = here.home / "relayed"
    documents: dict[str, bytes] = {
        "deep": b"[" * 100_000,
        "empty": b"",
        "binary": os.urandom(1000),
        "list": b"[]",
        "numbers": b'{"format": 1e400, "partitions": {"-1": {}, "99999999999999999999": {}}}',
        "names": json.dumps({"format": 1, "version": 1, "stream": EVIL, "partitions": {"0": {"shard": EVIL}}}).encode(),
        f"evil\x1b[2J{CANARY[:2]}": b"{}",
    }
    for name, content in documents.items():
        topic = root / name
        topic.mkdir(parents=True)
        for file in ("catalog.json", "topic.json"):
            (topic / file).write_bytes(content)
        (topic / "0").mkdir()
    (root / "loop").symlink_to(root / "loop")
    (root / "elsewhere").symlink_to("/etc")
    os.mkfifo(root / "pipe")


@cases.case("each ends with a sentence, and escapes names", name="efo log on a directory of hostile topics")
def _() -> Outcome:
    with world() as here:
        _catalogs(here)
        _create(here, f"[efo.leases.Lease({SHARD!r}, efo.Checkpoint('5'))]")
        topics = sorted(path.name for path in (here.home / "relayed").iterdir())
        ended = [here.efo("log", "inspect"), here.efo("log", "verify")]
        ended += [here.efo("log", "adopt", "--topic", topic, "--yes") for topic in topics[:4]]
        ended += [here.efo("log", "inspect", "--topic", topic) for topic in topics[4:]]
        return _outcome(ended, is_right=True)


@cases.case("it asks, then the log continues; a second call adopts nothing", name="efo log adopt")
def _() -> Outcome:
    with world() as here:
        leases = f"[efo.leases.Lease({SHARD!r}, efo.Checkpoint('5')), efo.leases.Lease({EVIL!r}, efo.Checkpoint('5'))]"
        _create(here, leases)
        refused, first, second = (here.efo("log", "adopt", *yes) for yes in ([], ["--yes"], ["--yes"]))
        inspected = here.efo("log", "inspect")
        right = refused.status == 64 and first.status == 0 and "nothing to adopt" in second.out
        return _outcome([refused, first, second, inspected], right and SHARD in inspected.out)


# --- sinks of packages -----------------------------------------------------------------------------------------------

_PACKAGE: Final = """
from contextlib import asynccontextmanager
import sys, time, trio
from efo.model import Checkpoint
from efo_service.relay.sink import Part

class Shard:
    def __init__(self):
        self._position = None
    position = property(lambda self: POSITION)
    refusal = None
    def prepare(self, records): return Part(records[-1].sequence_number, len(records))
    async def commit(self, parts):
        COMMIT
        self._position = Checkpoint(parts[-1].content)

class Sink:
    def open(self, stream, shard_id, checkpoint): return self._open()
    @asynccontextmanager
    async def _open(self):
        OPEN
        yield Shard()

@asynccontextmanager
async def evil(options, context):
    ENTER
    yield Sink()
"""


def _plugin(right: str, name: str, *, expected: str, commits: bool = False, **code: str) -> None:
    """Register a case of a sink. `code`: what its parts do. `expected`: what the log says. `commits`: it does."""

    @cases.case(right, name=f"a sink of a package: {name}")
    def try_it() -> Outcome:
        with world() as here:
            here.put(20)
            site = here.home / "site"
            info = site / "evil_sink-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil-sink\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text("[efo.sinks]\nevil = evil_sink:evil\n")
            text = _PACKAGE
            for part in ("POSITION", "COMMIT", "OPEN", "ENTER"):
                text = text.replace(part, code.get(part.lower(), "None" if part == "POSITION" else "pass"))
            (site / "evil_sink.py").write_text(text)
            process = here.start(
                "-P", "-m", "efo_service.cli", "run",
                EFO_RELAY__SINK="evil", EFO_SERVICE__PORT="0", PYTHONPATH=f"{ROOT}{os.pathsep}{site}",
                EFO_RELAY__OPTIONS=json.dumps({"password": CANARY}), EFO_LEASES__FAILOVER_SECONDS="5",
            )  # fmt: skip
            watchdog = threading.Timer(50, process.terminate)
            watchdog.start()
            assert process.stdout is not None  # a pipe
            seen = []
            for line in process.stdout:
                seen.append(line)
                if expected in line:
                    time.sleep(2)  # what is acked now would be seen
                    break
            watchdog.cancel()
            process.terminate()
            ended = here.wait(process, 40)
            acked = [
                lease for lease in _leases(here)
                if lease["checkpoint"] not in {"TRIM_HORIZON", "LATEST"}
            ]  # fmt: skip
            is_reported = expected in "".join(seen) + ended.out + ended.err
            right = is_reported and (commits or not acked) and ended.status not in {None, _INTERNAL}
            return Outcome(f"exit {ended.status}, reported {is_reported}, {len(acked)} shards acked", right)


_RAISE: Final = f'raise ValueError("{CANARY}")'
_plugin(
    "a defect with its place, nothing is acked",
    "commit raises",
    commit=_RAISE,
    expected="its sink failed with ValueError",
)
_plugin("a defect with its place", "open raises", open=_RAISE, expected="its sink failed with ValueError")
_plugin("a defect with its place", "it cannot be entered", enter=_RAISE, expected="its sink failed with ValueError")
_plugin("refused by name", "its position is a text", position="'7'", expected="position of its sink is a str")
_plugin("refused by name", "its position is LATEST", position="Checkpoint.LATEST", expected="position of its sink is")
_plugin(
    "refused, nothing is acked",
    "its position stays behind",
    position="Checkpoint('1') if self._position else None",
    expected="which was committed",
)
_plugin(
    "it is reported, and no lease is lost",
    "commit blocks the loop",
    commit="time.sleep(1.5)",
    commits=True,
    expected="sink_blocks",
)


# --- tables of other libraries ----------------------------------------------------------------------------------------

_ROWS: Final[Sequence[tuple[str, object]]] = [
    (SHARD, "7"),
    (EVIL, "7"),
    ("x" * 200, "7"),
    ("shardId-000000000001", EVIL),
    ("shardId-000000000002", "9" * 5000),
    ("shardId-000000000003", ""),
    ("shardId-000000000004", "-7"),
    ("shardId-000000000005", "LATEST"),
    ("shardId-000000000006", "7\x00"),
]
_LOOK: Final = ("--look", "0")


def _leases(here: World) -> list[dict[str, str]]:
    """Return the leases; none if no worker has made a store, which a command that reads does not."""
    done = here.efo("leases", "list", "--json")
    if done.status == os.EX_USAGE and "there is no lease store" in done.err:
        return []
    found: list[dict[str, str]] = json.loads(done.out)["leases"]
    return found


def _migrated(here: World, library: str, url: str) -> Outcome:
    ended = [
        here.efo("migrate", library, url, *_LOOK, "--application", "app"),
        here.efo("migrate", library, url, *_LOOK, "--application", "app", "--write", "--yes"),
    ]
    left = _leases(here)
    # One row of many is right, and the others stop the whole migration.
    return _outcome(ended, not left and all(each.status for each in ended))


def _sql(serve: Callable[..., object], driver: str) -> Outcome:
    tempfile.tempdir = "/tmp"  # noqa: S108 - PostgreSQL runs as another user, who cannot enter this case's home
    os.chdir("/")
    with world() as here, serve() as url:  # type: ignore[attr-defined] # a context manager
        if driver == "psycopg":
            connection, charset = psycopg.connect(url, autocommit=True), ""
        else:
            _, _, rest = url.partition("://")
            user, _, rest = rest.partition(":")
            password, _, rest = rest.partition("@")
            address, _, name = rest.partition("/")
            port = int(address.partition(":")[2])
            connection = pymysql.connect(
                host="127.0.0.1", port=port, user=user, password=password, database=name, autocommit=True
            )
            charset = " CHARACTER SET utf8mb4"
        with closing(connection), closing(connection.cursor()) as cursor:
            cursor.execute(
                "CREATE TABLE kinesis_consumer (namespace TEXT, shard_id TEXT, sequence_number TEXT)" + charset
            )
            for shard, number in [*_ROWS, (None, "7"), ("shardId-000000000007", None)]:
                row = [value.replace("\0", "") if isinstance(value, str) else value for value in (shard, number)]
                cursor.execute("INSERT INTO kinesis_consumer VALUES (%s, %s, %s)", (f"app-{STREAM}", *row))
        return _migrated(here, "harlow", url)


@cases.case("refused with a sentence for each row, nothing is written", name="migrate: odd rows in PostgreSQL")
def _() -> Outcome:
    return _sql(serve_postgres, "psycopg")


@cases.case("refused with a sentence for each row, nothing is written", name="migrate: odd rows in MariaDB")
def _() -> Outcome:
    return _sql(serve_mariadb, "pymysql")


@cases.case("refused with a sentence for each row, nothing is written", name="migrate: odd keys in Redis")
def _() -> Outcome:
    with world() as here, serve_redis() as url:
        with redis.Redis.from_url(url) as client:
            for shard, number in _ROWS:
                client.set(f"app:checkpoint:{STREAM}:{shard}", str(number))
            client.set(f"app:checkpoint:{STREAM}:\xff".encode("latin-1"), b"\xff\xfe")
            client.set(f"app:checkpoint:{STREAM}:shardId-000000000008", b"7" * 10_000_000)
            client.rpush(f"app:checkpoint:{STREAM}:shardId-000000000009", "a list")
        return _migrated(here, "harlow", url)


@cases.case("refused with a sentence for each row, nothing is written", name="migrate: odd JSON in Redis")
def _() -> Outcome:
    with world() as here, serve_redis() as url:
        with redis.Redis.from_url(url) as client:
            for number, value in enumerate(
                [
                    '{"sequence": "7", "x": ' + "[" * 100_000,
                    '{"sequence": "7", "x": ' + "[" * 5000 + "]" * 5000 + "}",
                    '{"sequence": 7}',
                    '{"sequence": "7", "ref": ["a"]}',
                    '{"sequence": "7", "ts": 1e400}',
                    json.dumps({"sequence": EVIL, "ref": EVIL}),
                    json.dumps({"sequence": "7", "ref": EVIL}),
                    "null",
                    b"\xff",
                ]
            ):
                client.set(f"pyredis-app-shardId-{number:012}", value)
        return _migrated(here, "async-kinesis", url)


# --- lines -------------------------------------------------------------------------------------------------------


@cases.case("at most two lines of an outage, every record stored", name="PutRecords fails and works in turn")
def _() -> Outcome:
    with world() as here:
        for number in range(2, 60, 2):
            refuse = Refuse(f"Odd{number}", status=500, message=CANARY[:0] + "odd")
            here.kinesis.inject(refuse, When(operation="PutRecords", nth=number))
        ended = here.run(
            """
import logging
logging.basicConfig(level=logging.INFO)
settings = efo.ProducerSettings(linger_seconds=0.01)
with efo.sync.open_producer("orders", settings=settings, observer=efo.telemetry.LoggingObserver()) as producer:
    for number in range(60):
        producer.put(b"%d" % number, "key").result()
"""
        )
        lines = ended.err.count("outage of Kinesis")
        return Outcome(f"{lines} lines, {len(here.stored)} of 60 stored", lines <= 2 and len(here.stored) >= 60)
