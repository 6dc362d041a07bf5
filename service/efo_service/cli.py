"""The command line: `efo <command>`. Each command is a module of efo_service/commands, imported when it is called."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from inspect import cleandoc
from typing import Annotated, Final, Literal, NoReturn

try:
    from cyclopts import App, CycloptsError, Parameter
except ImportError as error:
    # The package installs this command in any case, but its dependencies only with the extra `service` or `cli`.
    sys.stderr.write(f"efo: a package of commands is missing ({error}): pip install 'efo[cli]', or 'efo[service]'\n")
    raise SystemExit(69) from error

from efo_service.exit_codes import Exit, report
from efo_service.memory import forbid_core_files
from efo_service.version import version_text

app = App(
    name="efo",
    help="Reads Amazon Kinesis by enhanced fan-out, in order, and relays every record to where Spark reads it.",
    help_epilogue="Exit codes: 0 success, 64 usage, 69 something that efo needs is unavailable, 70 internal error, "
    "75 drain cut short, 78 configuration, 130 interrupted.",
    help_format="plaintext",
    version=version_text,
    suppress_keyboard_interrupt=False,  # `call` reports it
)

# The help texts are here and not in the commands' modules, so that `efo --help` imports none of them.
_HELP: Final = {
    "run": """
        Relay Kinesis streams into the sink of [relay], until SIGTERM or Ctrl-C.

        Logs are JSON lines on stdout; an outage is one line when it begins and one when it ends. Health, metrics and
        status are served on [service] host and port: /readyz is 200 while the worker reads its shards, or none are to
        be read; /status lists what is wrong, with the remedies.

        With --workers N, N processes share the shards. Worker i serves on port + i. The port itself serves the status
        of all workers.

        The configuration may have many streams, in tables [streams.NAME]. SIGHUP reads it again: streams that differ
        are started, drained or restarted; the others are not touched.

        Python uses one core per process. With --workers auto, there is one worker for each core.

        Example: efo run --config config/efo.toml --workers 4
        """,
    "kcl": """
        Run what KCL's MultiLangDaemon runs: the executable of a properties file, one process for each shard.

        The record processors of amazon_kclpy, aws-kcl for Node.js and the KCL for Ruby and .NET run unchanged, without
        Java. The file and the lease table are KCL's, so that workers of both can share an application. Health, metrics,
        status and the page are those of `efo run`. EFO_<SECTION>__<KEY> in the environment goes before the file, such
        as EFO_SERVICE__PORT=0. What children write to stderr is on stderr, with the shard's id.

        A child that fails ends the worker, as in KCL, after all others have finished; with --on-child-failure isolate,
        its shard alone is given up, and tried again after a minute. docs/kcl.md has every property.

        Example: efo kcl --properties app.properties
        """,
    "pipeline": """
        Run the Spark pipeline: write the relayed records to Parquet, and count them per time window and key group.

        It resumes at its checkpoint. SIGTERM or Ctrl-C lets the running micro-batch finish.

        Example: efo pipeline --config config/efo.toml --available-now
        """,
    "demo": """
        Run the whole job on this machine: FakeKinesis over TLS, `efo run`, `efo pipeline`, and a comparison.

        A third of the records are in KPL aggregates. One shard is split and two are merged during the load.
        Progress goes to stderr. The last line of stdout is one JSON object. Exits with 1 unless every record
        arrived once and in order.

        Example: efo demo --records 50000 --no-spark --crash
        """,
    "fake": """
        Serve FakeKinesis on 127.0.0.1 until SIGTERM or Ctrl-C. Its SubscribeToShard behaves like that of AWS.

        It first prints its URL, its CA file and the environment variables that SDKs read. A fault script (--faults)
        defines what fails and when. --record writes a recording of what SubscribeToShard sends, and --replay serves
        one, or one of `efo record`, --speed times as fast.

        Example: efo fake --port 4567 --streams orders:4,clicks:1 --faults faults.toml
        """,
    "record": """
        Write what SubscribeToShard sends for a stream to a new file, as received and with its times.

        The file has the records of the stream in clear text. `efo fake --replay FILE` serves it again. It registers a
        fan-out consumer of its own, which stays, so the running application is not touched. Ends with --seconds,
        SIGTERM or Ctrl-C, and when all shards have ended.

        Example: efo record orders --output orders.jsonl --from -15m --seconds 60
        """,
    "log inspect": """
        Show what the log holds: topics, partitions, their shards and positions, the readers and their lag.

        It reads only file names and footers. A relay may run at the same time.

        Example: efo log inspect --directory var/log --json
        """,
    "log segments": """
        List the files that have the records of a topic, one on a line, for tools that copy, sync or read them.

        They are Arrow IPC files of the current segments; superseded ones are not listed. With --json, a line has the
        partition, its shard and the offsets too. On an object store, the objects of segments and of live commits.

        Example: efo log segments --directory var/log --topic orders
        """,
    "log readers list": """
        List the named readers of a topic: how many records each is behind, and when it committed last.

        Retention keeps what a reader has not read, whatever its limits say.

        Example: efo log readers list --config config/efo.toml
        """,
    "log readers remove": """
        Forget a reader that does not come back, so that retention waits for it no more.

        What it has not read may expire. If it does come back, it starts at its own checkpoint, and counts again.

        Example: efo log readers remove pipeline --config config/efo.toml
        """,
    "log verify": """
        Read every byte of the log, and report what is damaged, missing, duplicated or misplaced.

        The catalog, the directories, the readers and the leases must agree. With --directory, the leases are not
        compared. Exits with 1 if there is any problem.

        Example: efo log verify --config config/efo.toml --topic orders
        """,
    "log export": """
        Write records as JSON lines, to stdout or to a new file.

        Missing records end it with an error. --allow-gaps passes over them.

        Example: efo log export --directory var/log --topic orders --partition 0 --start 100 --end 200
        """,
    "log adopt": """
        Let shards continue in new partitions of the log, without what was read of them before.

        The relay refuses a log without a partition for a shard that was read, or with an emptied one: records would be
        missing. After a migration, a hand-over from KCL, or a recovery without a copy, this command lets it continue
        after the checkpoints of the leases. It lists what it will do, and asks. Stop the relay first.

        Example: efo log adopt --config config/efo.toml
        """,
    "leases list": """
        List all leases of the application on the stream: checkpoints, holders and hand-offs.

        This and the other commands for leases, shards and consumers need no configuration: --stream, --application and
        --leases name what a program passes to the library. A store that does not exist is an error, and not created.

        Example: efo leases list --config config/efo.toml
        """,
    "leases show": """
        Show everything that is stored about one lease.

        Example: efo leases show shardId-000000000000 --json
        """,
    "leases release": """
        Release leases from the workers that hold them, so that others can take them at once.

        Refused while a living worker holds one of the leases. This check takes the fail-over time; --force skips it.

        Example: efo leases release shardId-000000000000 --yes
        """,
    "leases reset": """
        Move the checkpoints of shards, backwards or forwards.

        --to takes trim_horizon, latest, a time like 2026-01-31T12:00:00Z, or how long ago, like -15m. For one shard, it
        also takes the sequence number of the last record that is done. With --all, finished shards are read again too,
        and their children after them. Where the sink keeps the position itself, as the log does, its position wins.

        Refused while a living worker holds one of the leases. This check takes the fail-over time; --force skips it.

        Example: efo leases reset --all --to 2026-01-31T12:00:00Z
        """,
    "leases delete": """
        Delete leases with their checkpoints. Their shards are read again from the initial position.

        Refused while a living worker holds one of the leases. This check takes the fail-over time; --force skips it.

        Example: efo leases delete --all --yes
        """,
    "leases export": """
        Write all leases as JSON, as a backup or to import them into another lease store.

        Example: efo leases export --output leases.json
        """,
    "leases import": """
        Create the leases of a file that `efo leases export` wrote, without their owners.

        Refused, with nothing written, if a lease exists with another checkpoint. --overwrite changes such leases.

        Example: efo leases import leases.json --overwrite
        """,
    "migrate": """
        Move the checkpoints of another library to efo's leases, or back with --back. Without --write it only reports.

        LIBRARY is kcl (1, 2 and 3), kclpy, vmware-go-kcl, kinesumer, harlow or async-kinesis. CHECKPOINTS is
        dynamodb:TABLE (with ?region=, endpoint_url=, ca_file=, profile= or proxy_url=), redis://..., postgresql://...
        or mysql://...
        A URL with a password belongs into the variable EFO_MIGRATE_CHECKPOINTS, not on the command line.

        It reports what becomes of each shard. Refused, with nothing written: an application that still runs, found by
        looking twice; a row that efo cannot read; rows of another stream; leases that efo has already, unless
        --overwrite; with --back, a position that the library cannot hold, unless --partial.

        Example: efo migrate kcl dynamodb:billing --config config/efo.toml
        """,
    "shards": """
        Show the stream's shards as a tree: state, owner, checkpoint and lag.

        The lag costs one GetRecords call for each shard that is not finished. --no-lag omits it.

        Example: efo shards --config config/efo.toml --json
        """,
    "tail": """
        Show the records of a stream from any position, until Ctrl-C. The data of the records is shown.

        It reads by GetRecords, without leases and without a fan-out consumer, so a running application is not touched.
        On AWS, all callers of GetRecords share 5 calls per second and 2 MiB/s of each shard. A shard's children follow
        when it has ended. KPL aggregates are shown as their user records.

        A configuration file is not needed. If there is one, its region, endpoint, profile and ca_file apply. Streams
        may be named as in [streams].

        Example: efo tail orders --from -15m --filter '"status":"failed"' --limit 10
        """,
    "put": """
        Put records into a stream: lines of a file or of stdin, JSON lines, or a whole file as one record.

        Records share requests, what the service throttles is sent again, and each shard's limits are kept. A line that
        is no record ends it with an error that names the line; those before it are put. Exits with 69 if records were
        not stored. Progress goes to stderr; with --json, the last line of stdout is a summary.

        What `efo tail --json` writes, `efo put --format json` takes.

        Example: efo put orders orders.jsonl --key-field customer --rate 500
        """,
    "consumers list": """
        List the stream's fan-out consumers.

        Example: efo consumers list --config config/efo.toml
        """,
    "consumers register": """
        Register a fan-out consumer if it does not exist, and wait until it is ACTIVE.

        Example: efo consumers register billing
        """,
    "consumers deregister": """
        Deregister a fan-out consumer. Its subscriptions end.

        Refused while living workers hold leases of the application that has its name, and with --yes if no lease tells
        anything: the store of the leases is that of the configuration, or of --leases. --force skips this check.

        Example: efo consumers deregister billing --yes
        """,
    "consumers janitor": """
        Deregister stale fan-out consumers, by name and age, but never efo's own. A stream has room for 20.

        Kinesis does not report whether a consumer is in use, but leases do: those of living workers are refused, and
        with --yes those of which no lease tells anything, unless --force. Check the list before you confirm.

        Example: efo consumers janitor "worker-*" --older-than 30
        """,
    "check-config": """
        Check the configuration, and print every setting with its resolved value.

        Paths are shown as they are used: relative ones are relative to the file's directory. --changed prints only what
        differs from the defaults.

        If a setting is wrong, reports where it is and what to write instead, and exits with 78. --schema prints a JSON
        Schema, with which editors of TOML complete and check the file.

        Example: efo check-config --config config/efo.toml
        """,
    "doctor": """
        Check everything that `efo run` needs, and say what to do about each problem.

        Credentials, the way to Kinesis, permissions, the stream and its fan-out consumers, the lease store, the sink,
        disks, ports and Java. It only reads: it creates nothing, and neither subscribes nor fences. What cannot be
        tested without harm is listed as not tested. Run it where `efo run` is to run, as the same user.

        Exits with 69 if something is unavailable, with 78 if the configuration is wrong, with 0 if no check failed.

        Example: efo doctor --config config/efo.toml --json
        """,
    "healthcheck": """
        Ask the service on [service] host and port whether it is alive. Exits with 69 if it is not.

        Example: efo healthcheck --config config/efo.toml --ready
        """,
    "log-level": """
        Change the level of the log of a running service, or of all workers of a supervisor, until it is started again.

        It needs the token of the service ([service] token). The level of the configuration changes by SIGHUP.

        Example: efo log-level debug --config config/efo.toml
        """,
    "completion": """
        Print a script that completes efo's commands and options in bash, zsh or fish.

        bash: add `source <(efo completion bash)` to ~/.bashrc. zsh: write it to a file _efo in a directory of $fpath.
        fish: write it to ~/.config/fish/completions/efo.fish.

        Example: efo completion bash > ~/.local/share/bash-completion/completions/efo
        """,
    "top": """
        Show what the service on [service] host and port does, shard by shard, until q or Ctrl-C.

        It reads /status and /metrics, those of all workers from the port of a supervisor. A rate is that of the last
        interval. Of a terminal it redraws as many lines as there are. Without a terminal, or with --once, it prints one
        table after one interval. With --json, it writes one object on a line for each interval.

        While the service does not answer, it tries again on a terminal; otherwise it exits with 69.

        Example: efo top --config config/efo.toml --sort rate
        """,
    "version": """
        Print the version, and the commit that it was built from.

        Example: efo version --json
        """,
}
_GROUPS: Final = {
    "log": "Read the embedded log: inspect, verify, export, segments, readers, adopt.",
    "leases": "Show and change the leases: list, show, release, reset, delete, export, import.",
    "consumers": "Manage the stream's fan-out consumers: list, register, deregister, janitor.",
}
_groups = {name: App(name=name, help=text, help_format="plaintext") for name, text in _GROUPS.items()}
for _group in _groups.values():
    app.command(_group)
_readers = "The named readers of the log: list, remove."
_groups["log readers"] = App(name="readers", help=_readers, help_format="plaintext")
_groups["log"].command(_groups["log readers"])


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell.")], /) -> None:
    """Print the completion script of a shell. It is here because it describes every command."""
    sys.stdout.write(app.generate_completion(shell=shell))


app.command(completion, help=cleandoc(_HELP.pop("completion")))
for _name, _help in _HELP.items():
    _group_name, _, _last = _name.replace("-", "_").rpartition(" ")
    _module = _group_name.replace(" ", "_")
    # `import` is a keyword, and `list` and `show` would shadow other names.
    _function = f"{_last}_" if _last in {"import", "list", "show"} else _last
    _target = f"efo_service.commands.{_module or _last}:{_function}"
    _groups.get(_group_name, app).command(_target, name=_name.rpartition(" ")[2], help=cleandoc(_help))


def call(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of sys.argv), and return the exit code. Report errors on stderr."""
    try:
        result = app(arguments, exit_on_error=False, result_action="return_value")
    except CycloptsError:
        return Exit.USAGE  # cyclopts has printed the error
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - nothing above this function reports it
        return report(error)
    return result if isinstance(result, int) else Exit.OK


GC_THRESHOLDS: Final = (50_000, 20, 50)
"""How many new objects start a garbage collection, and how many of these one of the older objects. What a start makes
stays: with Python's 700, collections would take a seventh of it."""


def main() -> NoReturn:
    """Run the program, and exit."""
    gc.set_threshold(*GC_THRESHOLDS)
    forbid_core_files()
    sys.exit(call())


if __name__ == "__main__":
    main()
