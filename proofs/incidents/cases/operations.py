"""Changes, secrets, disks and readers; and commands that are called beside the directory of the workers."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import trustme

from efo_service.log.disk import DiskFiles
from efo_service.log.reader_offsets import commit_reader
from efo_service.workers.process import efo_command
from proofs.edges.service import STREAM, environment
from proofs.incidents.disks import small_disk
from proofs.incidents.incident import Expected, Incident, in_log, running
from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("operations", seconds=240)

_TOKEN = f"{CANARY}token0123456789"
_PROBLEM = "EfoProcessProblem"


def _problem(kind: str, text: str, log: str) -> Expected:
    return Expected(text, log, rf'efo_process_problem\{{efo_problem="{kind}"\}} 1', alert=_PROBLEM, obstacle="")


def _ours(one: Incident) -> list[str]:
    """Return the problems, without that of a machine whose disk is nearly full."""
    return [text for text in one.status()["problems"] if not text.startswith("the disk of the log")]


def _hang_up(one: Incident) -> None:
    one.service.process.send_signal(signal.SIGHUP)


def _command(one: Incident, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of no file, in a directory."""
    variables = {**environment(one.kinesis), "EFO_CONSUMER__APPLICATION": "efo"}
    variables = {name: value for name, value in variables.items() if name not in {"EFO_CONFIG", "EFO_LEASES__PATH"}}
    return subprocess.run(
        efo_command(*arguments), env=variables, cwd=directory, capture_output=True, text=True, check=False
    )


@cases.case("ready, with the reason as a problem and a metric; it goes on with the configuration before")
def a_reload_is_refused() -> Outcome:
    file = Path("efo.toml").absolute()
    file.write_text("[relay]\nretention_hours = 1\n")
    with running(CONFIG=file) as one:

        def begin() -> None:
            file.write_text("[relay]\nretention_hours = -1\n")
            _hang_up(one)

        one.play(begin, _problem("reload_refused", "refused.*retention_hours", "reload_failed.*retention_hours"))
        file.write_text("[relay]\nretention_hours = 2\n")
        _hang_up(one)
        is_over = one.until(lambda: not _ours(one), 15)
        return one.outcome(is_right=is_over)


@cases.case("ready, with the setting that waits for a restart")
def a_changed_setting_needs_a_restart() -> Outcome:
    file = Path("efo.toml").absolute()
    file.write_text("")
    with running(CONFIG=file) as one:

        def begin() -> None:
            file.write_text("[service]\ndrain_seconds = 7\n")
            _hang_up(one)

        one.play(begin, _problem("restart_needed", r"\[service\] drain_seconds", "restart_needed.*drain_seconds"))
        return one.outcome()


@cases.case("both tokens are taken, then only the new one; the line of an action names who; the file alone is changed")
def a_token_is_rotated() -> Outcome:
    file = Path("token").absolute()
    old, new = f"alice:{_TOKEN}-old", f"bob:{_TOKEN}-new"
    file.write_text(f"{old}\n")
    with running(SERVICE__TOKEN_FILE=file) as one:
        shard = one.status()["shards"][0]["shard_id"]

        def acts(token: str) -> bool:
            body = json.dumps({"action": "resume", "shard_id": shard})
            headers = {"authorization": f"Bearer {token.partition(':')[2]}", "content-type": "application/json"}
            request = urllib.request.Request(one.service.url + "/actions", body.encode(), headers)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - of this host
                    return bool(answer.status == 200)
            except urllib.error.HTTPError as error:
                return error.code == 409

        def write(content: str) -> None:
            known = len(one.service.named("reloaded"))
            file.write_text(f"{content}\n")
            one.until(lambda: len(one.service.named("reloaded")) > known, 20)

        before = acts(old), acts(new)
        write(f"{old} {new}")
        both = acts(old), acts(new)
        write(new)
        after = not acts(old), acts(new)
        named = {line.get("by") for line in one.service.lines if str(line.get("event")).startswith("action_")}
        is_right = (before, both, after) == ((True, False), (True, True), (True, True)) and {"alice", "bob"} <= named
        one.note(f"before {before}, both {both}, after {after}, by {sorted(map(str, named))}")
        return one.outcome(is_right=is_right)


@cases.case("ready, with the reason as a problem; the token before stays")
def the_file_of_a_token_is_emptied() -> Outcome:
    file = Path("token").absolute()
    file.write_text(_TOKEN)
    with running(SERVICE__TOKEN_FILE=file) as one:
        one.play(
            lambda: file.write_text(""), _problem("reload_refused", "refused.*token_file", "reload_failed.*token_file")
        )
        return one.outcome()


@cases.case("ready, with both files as a problem, at the next connection; the certificate before is served")
def a_certificate_is_not_renewed() -> Outcome:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    files = {"SERVICE__CERTIFICATE_FILE": Path("tls.crt").absolute(), "SERVICE__KEY_FILE": Path("tls.key").absolute()}
    certificate.cert_chain_pems[0].write_to_path(str(files["SERVICE__CERTIFICATE_FILE"]))
    certificate.private_key_pem.write_to_path(str(files["SERVICE__KEY_FILE"]))
    ssl._create_default_https_context = ssl._create_unverified_context  # type: ignore[assignment]  # noqa: SLF001
    with running(options=files) as one:
        other = authority.issue_cert("127.0.0.1", "localhost")
        expected = _problem("certificate_not_renewed", "not renewed.*tls.crt", "certificate_not_renewed.*tls.crt")
        one.play(lambda: other.cert_chain_pems[0].write_to_path(str(files["SERVICE__CERTIFICATE_FILE"])), expected)
        other.private_key_pem.write_to_path(str(files["SERVICE__KEY_FILE"]))
        return one.outcome(is_right=one.until(lambda: not _ours(one), 15))


@cases.case("ready, with the reader's name and the command that forgets it; then the log shrinks")
def a_reader_holds_the_log() -> Outcome:
    options = {"RELAY__RETENTION_BYTES": 10_000, "RELAY__MAINTENANCE_SECONDS": 1}
    with running(lambda: one_end(Path("log")), options) as one:
        expected = Expected(
            "the reader audit has not read .*efo log readers remove audit",
            "retention_waits_for_readers.*audit",
            r'efo_log_held_back_bytes\{efo_reader="audit".*\} [1-9]',
            alert="EfoLogHeldByReader",
            obstacle="",
        )

        def begin() -> None:
            commit_reader(DiskFiles(Path("log")), STREAM, "audit", {0: 0}, time.time())
            for _ in range(400):  # more than is superseded and not removed yet
                one.put_one(os.urandom(10_000))

        one.play(begin, expected, limit=30)
        done = _command(one, Path.cwd(), "log", "readers", "remove", "audit", "--yes", "--directory", "log")
        is_over = one.until(lambda: not _ours(one), 30)
        one.note(done.stdout.strip())
        return one.outcome(is_right=done.returncode == 0 and is_over)


def one_end(root: Path) -> int:
    """Return how many records a log has had: retention may have removed some."""
    from efo_service.log.inspection import inspect_topic  # noqa: PLC0415 - pyarrow
    from efo_service.log.topic import log_files  # noqa: PLC0415 - the same

    return sum(partition.end for partition in inspect_topic(log_files(root), STREAM).partitions)


@cases.case("ready, with the free space as a problem, before the disk is full")
def the_disk_of_the_log_is_nearly_full() -> Outcome:
    with small_disk(64) as disk:
        options = {"RELAY__DIRECTORY": disk.path, "RELAY__MAINTENANCE_SECONDS": 1}
        with running(lambda: in_log(disk.path), options) as one:
            expected = Expected(
                "the disk of the log .* MiB free",
                "log_disk_filling",
                r"efo_log_disk_free_bytes\{.*\} [12]\.?\d*e\+06",
                alert="EfoLogDiskFilling",
                obstacle="",
            )
            one.play(lambda: disk.fill(leave=2_500_000), expected)
            disk.free()
            return one.outcome()


@cases.case("each refuses, with the path of the store that is missing, and creates nothing; the consumer stays")
def commands_beside_the_directory_of_the_workers() -> Outcome:
    elsewhere = Path("elsewhere").absolute()
    elsewhere.mkdir()
    with running() as one:
        reported: list[str] = []
        codes: list[int] = []
        for arguments in (
            ("leases", "list"),
            ("leases", "export"),
            ("leases", "release", "--all", "--yes"),
            ("leases", "reset", "--all", "--to", "-1h", "--yes"),
            ("shards",),
            ("consumers", "deregister", "efo", "--yes"),
        ):
            done = _command(one, elsewhere, *arguments)
            codes.append(done.returncode)
            reported.append(done.stderr)
        names = all(f"{elsewhere}/var/leases.sqlite" in text for text in reported)
        is_right = set(codes) == {64} and names and not any(elsewhere.iterdir())
        one.note(f"exit codes {sorted(set(codes))}, {len(list(elsewhere.iterdir()))} files made")
        stays = _command(one, elsewhere, "consumers", "list", "--json")
        return one.outcome(is_right=is_right and '"name": "efo"' in stays.stdout)


@cases.case("no line is lost or torn: those before are in the moved file, those after in the new one")
def json_lines_are_rotated_by_another_program() -> Outcome:
    file, moved = Path("lines.jsonl").absolute(), Path("lines.jsonl.1").absolute()

    def arrived() -> int:
        lines = [json.loads(line) for part in (moved, file) if part.exists() for line in part.read_text().splitlines()]
        return len({tuple(map(tuple, line["headers"][1:4])) for line in lines})

    with running(arrived, RELAY__SINK="jsonl", RELAY__JSONL_FILE=file) as one:
        os.rename(file, moved)  # noqa: PTH104 - as logrotate does
        is_new = one.until(lambda: file.exists() and file.stat().st_size > 0, 15)
        return one.outcome(is_right=bool(is_new))
