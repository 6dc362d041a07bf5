"""The command line: `efo <command>`. Each command is a module of service/commands, imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import cleandoc
from typing import Final, NoReturn

from cyclopts import App, CycloptsError

from service.exits import Exit, report
from service.version import VERSION

app = App(
    name="efo",
    help="Reads Amazon Kinesis by enhanced fan-out, in order, and relays every record to where Spark reads it.",
    help_epilogue="Exit codes: 0 done, 64 usage, 69 something needed is unavailable, 70 internal error, "
    "75 stopped before the drain was done, 78 configuration.",
    help_format="plaintext",
    version=VERSION,
)

# What users read stands here and not with the commands: so `efo --help` imports none of them.
_HELP: Final = {
    "run": """
        Relay a Kinesis stream into the log, until SIGTERM or Ctrl-C.

        Logs are JSON lines on stdout. Health, metrics and status are served on [service] host and port.

        Example: efo run --config config/efo.toml
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
_log = App(name="log", help="Look at the embedded log: inspect, verify, export.", help_format="plaintext")
app.command(_log)
for _name, _help in _HELP.items():
    _group, _, _last = _name.replace("-", "_").rpartition(" ")
    _place = f"service.commands.{_group or _last}:{_last}"
    (_log if _group else app).command(_place, name=_name.rpartition(" ")[2], help=cleandoc(_help))


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
