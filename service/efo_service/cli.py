"""The command line: `efo <command>`. Each command is a module of service/commands, imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import cleandoc
from typing import Final, NoReturn

try:
    from cyclopts import App, CycloptsError
except ImportError as error:
    # efo's library alone, or with another extra, brings this command but not what it needs.
    sys.stderr.write(f"efo: the command line is not installed beside efo ({error}): pip install 'efo[service]'\n")
    raise SystemExit(69) from error

from efo_service.exit_codes import Exit, report
from efo_service.version import VERSION

app = App(
    name="efo",
    help="Reads Amazon Kinesis by enhanced fan-out, in order, and relays every record to where Spark reads it.",
    help_epilogue="Exit codes: 0 done, 64 usage, 69 something needed is unavailable, 70 internal error, "
    "75 stopped before the drain was done, 78 configuration, 130 interrupted.",
    help_format="plaintext",
    version=VERSION,
    suppress_keyboard_interrupt=False,  # `call` tells of it
)

# What users read stands here and not with the commands: so `efo --help` imports none of them.
_HELP: Final = {
    "run": """
        Relay a Kinesis stream into the log, until SIGTERM or Ctrl-C.

        Logs are JSON lines on stdout. Health, metrics and status are served on [service] host and port.

        With --workers N, N processes share the shards. Worker i serves on port + i; the port itself tells of all.

        Example: efo run --config config/efo.toml --workers 4
        """,
    "pipeline": """
        Run the Spark pipeline: the log's records to Parquet, and counts per time window and key group.

        It goes on where it stopped. SIGTERM or Ctrl-C lets the running batch finish.

        Example: efo pipeline --config config/efo.toml --available-now
        """,
    "demo": """
        Run the whole job on this machine: FakeKinesis over TLS, `efo run`, `efo pipeline`, and a comparison.

        A third of the records come in KPL aggregates; one shard is split and two are merged while they flow.
        Progress goes to stderr; the last line of stdout is one JSON object. Exits with 1 unless every record
        landed once and in order.

        Example: efo demo --records 50000 --no-spark --crash
        """,
    "fake": """
        Serve FakeKinesis on 127.0.0.1 until SIGTERM or Ctrl-C: SubscribeToShard as AWS does it, for any client.

        Its URL, its CA file and what SDKs read from the environment are printed first. A fault script makes it fail
        as it says; --record writes what goes over the wire, and --replay serves that again.

        Example: efo fake --port 4567 --streams orders:4,clicks:1 --faults faults.toml
        """,
    "log inspect": """
        Tell what the log holds: topics, partitions, their shards and positions, the readers and their lag.

        It reads names and footers only, beside a running relay too.

        Example: efo log inspect --directory var/log --json
        """,
    "log verify": """
        Read every byte of the log, and say what is damaged, missing, twice or in the wrong place.

        Exits with 1 if anything is.

        Example: efo log verify --config config/efo.toml --topic orders
        """,
    "log export": """
        Write records as JSON lines, to stdout or to a new file.

        Example: efo log export --directory var/log --topic orders --partition 0 --start 100 --end 200
        """,
    "leases list": """
        List all leases of the application on the stream: checkpoints, holders, hand-offs.

        Example: efo leases list --config config/efo.toml
        """,
    "leases show": """
        Show one lease, with everything that is stored about it.

        Example: efo leases show shardId-000000000000 --json
        """,
    "leases release": """
        Free leases of the workers that hold them, so that others take them at once.

        Refused while a living worker holds one, which takes the fail-over time to find out; --force does it anyway.

        Example: efo leases release shardId-000000000000 --yes
        """,
    "leases reset": """
        Let shards be read anew from another place, backwards or forwards.

        --to takes trim_horizon, latest, a time like 2026-01-31T12:00:00Z, or, for one shard, the sequence number of
        the last record that is done. With --all, shards that were finished begin anew too, their children after them.
        Where the sink keeps the position itself, as the log does, that one wins.

        Refused while a living worker holds one, which takes the fail-over time to find out; --force does it anyway.

        Example: efo leases reset --all --to 2026-01-31T12:00:00Z
        """,
    "leases delete": """
        Delete leases: what was read of their shards is forgotten, and they begin at the initial position again.

        Refused while a living worker holds one, which takes the fail-over time to find out; --force does it anyway.

        Example: efo leases delete --all --yes
        """,
    "leases export": """
        Write all leases as JSON, to keep them or to bring them into another lease store.

        Example: efo leases export --output leases.json
        """,
    "leases import": """
        Create the leases of a file that `efo leases export` wrote, without the workers that held them.

        Refused, with nothing written, if leases are there and stand elsewhere; --overwrite changes them.

        Example: efo leases import leases.json --overwrite
        """,
    "shards": """
        Show the stream's shards as a family tree: state, owner, checkpoint, and how far that is behind.

        How far is asked of Kinesis by one GetRecords per shard that is being read; --no-lag leaves it out.

        Example: efo shards --config config/efo.toml --json
        """,
    "consumers list": """
        List the stream's fan-out consumers.

        Example: efo consumers list --config config/efo.toml
        """,
    "consumers register": """
        Register a fan-out consumer if there is none of its name, and wait until it is ACTIVE.

        Example: efo consumers register billing
        """,
    "consumers deregister": """
        Deregister a fan-out consumer: whoever reads by it is cut off.

        Our own is refused while living workers hold leases; --force does it anyway.

        Example: efo consumers deregister billing --yes
        """,
    "consumers janitor": """
        Deregister forgotten fan-out consumers: by name and age, never our own. A stream has room for 20.

        Kinesis does not tell whether anybody reads by one, so look at the list before you say yes.

        Example: efo consumers janitor --match "worker-*" --older-than 30
        """,
    "check-config": """
        Check the configuration, and print every setting with the value that it comes to.

        Exits with 78 and says what is wrong, where, and what to write instead.

        Example: efo check-config --config config/efo.toml
        """,
    "healthcheck": """
        Ask the service on [service] host and port whether it is alive. Exits with 69 if it is not.

        Example: efo healthcheck --config config/efo.toml --ready
        """,
    "version": """
        Print the version.

        Example: efo version --json
        """,
}
_GROUPS: Final = {
    "log": "Look at the embedded log: inspect, verify, export.",
    "leases": "Look at the leases and change them: list, show, release, reset, delete, export, import.",
    "consumers": "The stream's fan-out consumers: list, register, deregister, janitor.",
}
_groups = {name: App(name=name, help=text, help_format="plaintext") for name, text in _GROUPS.items()}
for _group in _groups.values():
    app.command(_group)
for _name, _help in _HELP.items():
    _module, _, _last = _name.replace("-", "_").rpartition(" ")
    # A function cannot be called `import`, and had better not be called `list`.
    _function = f"{_last}_" if _last in {"import", "list", "show"} else _last
    _place = f"efo_service.commands.{_module or _last}:{_function}"
    _groups.get(_module, app).command(_place, name=_name.rpartition(" ")[2], help=cleandoc(_help))


def call(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, sys.argv's unless given; return the exit code. Errors are told on stderr."""
    try:
        result = app(arguments, exit_on_error=False, result_action="return_value")
    except CycloptsError:
        return Exit.USAGE  # cyclopts has said what is wrong
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last place to tell it
        return report(error)
    return result if isinstance(result, int) else Exit.OK


def main() -> NoReturn:
    """Be the program."""
    sys.exit(call())


if __name__ == "__main__":
    main()
