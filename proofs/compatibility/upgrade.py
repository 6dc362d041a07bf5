"""An upgrade and a downgrade between two versions, on processes that relay: what one writes, the other goes on with.

The older version is a commit of this repository: by default the last release before this commit, and while there is
none, the commit before the last change of a format. Its code runs with this environment's packages.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from efo.testing import FakeKinesisThread
from efo_service.log.inspection import inspect_topic
from efo_service.log.topic import log_files
from proofs.paths import ROOT

FORMATS: Final = ("efo/leases/stores/sqlite/schema.py", "service/efo_service/log")
"""Where the formats of the lease store and of the log are."""
_RECORDS: Final = 200
_SECONDS: Final = 60.0
_STREAM: Final = "orders"


@dataclass(frozen=True, slots=True)
class Step:
    """What a version did with what the other had left. `outcome`: "relayed", or "refused" with the reason."""

    version: str
    outcome: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class Result:
    """The steps, what the log has at the end, and whether nothing was lost or repeated."""

    commit: str
    steps: tuple[Step, ...]
    put: int
    found: int
    passed: bool


def last_release() -> str | None:
    """Return the newest tag of a release (v0.1.0) before this commit; None if there is none."""
    tags = _git("tag", "--merged", "HEAD^", "--sort=-version:refname", "--list", "v[0-9]*").split()
    return tags[0] if tags else None


def before_the_last_format() -> str:
    """Return the commit before the last change of a format. Raises subprocess.CalledProcessError without a history."""
    changed = r"^_?([A-Z]+_)?(VERSION|FORMAT): Final = [0-9]"
    last = _git("log", "-1", "--format=%H", "-G", changed, "--", *FORMATS).strip()
    return _git("rev-parse", f"{last}^").strip()


def upgrade_and_downgrade(commit: str, directory: Path) -> Result:
    """Relay by the older version, by this one, by the older one again, and by this one, on one log and lease store.

    The older version may refuse what this one has written, with a sentence and without a change: then this one goes on.
    """
    old = directory / "old"
    with tarfile.open(fileobj=BytesIO(_archive(commit))) as archive:
        archive.extractall(old, filter="data")
    data = directory / "data"
    data.mkdir()
    steps = []
    put = 0
    with FakeKinesisThread() as fake:
        fake.create_stream(_STREAM, 2)
        for version, root in ((commit[:12], old), ("this one", ROOT), (commit[:12], old), ("this one", ROOT)):
            for number in range(put, put + _RECORDS):
                fake.put(_STREAM, f"key-{number % 7}", b"%d" % number)
            put += _RECORDS
            steps.append(_relay(version, root, fake, data, put))
    found = [json.loads(line)["value"] for line in _export(data)]
    passed = (
        len(found) == len(set(found)) == put
        and all(step.outcome == "relayed" for step in steps if step.version == "this one")
        and all(step.outcome == "relayed" or "version" in step.reason for step in steps)
        and steps[0].outcome == "relayed"
    )
    return Result(commit, tuple(steps), put, len(found), passed)


def _relay(version: str, root: Path, fake: FakeKinesisThread, data: Path, put: int) -> Step:
    """Run a version until all records are in the log, or until it ends by itself."""
    with _running(root, fake, data) as process:
        deadline = time.monotonic() + _SECONDS
        while (count := _count(data)) < put and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        has_ended = process.poll() is not None
    reason = _reason(data / "efo.log") if has_ended else ""
    is_done = count >= put
    return Step(version, "relayed" if is_done else "refused" if has_ended else "stuck", reason, count)


@contextmanager
def _running(root: Path, fake: FakeKinesisThread, data: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("EFO_", "AWS_"))},
        "PYTHONPATH": f"{root}{os.pathsep}{root / 'service'}",
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true",
        "EFO_KINESIS__STREAM": _STREAM, "EFO_KINESIS__REGION": "us-east-1",
        "EFO_KINESIS__ENDPOINT_URL": fake.url, "EFO_KINESIS__CA_FILE": str(fake.ca_file),
        "EFO_LEASES__PATH": str(data / "leases.sqlite"), "EFO_LEASES__FAILOVER_SECONDS": "2",
        "EFO_LEASES__WORKER_ID": "worker", "EFO_RELAY__DIRECTORY": str(data / "log"), "EFO_SERVICE__PORT": "0",
    }  # fmt: skip
    with (data / "efo.log").open("wb") as log:
        command = [sys.executable, "-m", "efo_service", "run"]
        process = subprocess.Popen(command, env=environment, cwd=data, stdout=log, stderr=log)  # noqa: S603
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)  # nothing, if it has ended
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _count(data: Path) -> int:
    if not (data / "log" / _STREAM / "catalog.json").exists():
        return 0
    state = inspect_topic(log_files(data / "log"), _STREAM)
    return sum(partition.end - partition.start for partition in state.partitions)


def _export(data: Path) -> list[bytes]:
    command = [sys.executable, "-m", "efo_service", "log", "export", "--directory", str(data / "log")]
    return subprocess.run(command, check=True, capture_output=True).stdout.splitlines()  # noqa: S603


def _reason(log: Path) -> str:
    lines: list[dict[str, Any]] = [json.loads(line) for line in log.read_bytes().splitlines() if line.startswith(b"{")]
    return next((str(line.get("message", "")) for line in reversed(lines) if line.get("event") == "failed"), "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout  # noqa: S603, S607


def _archive(commit: str) -> bytes:
    command = ["git", "-C", str(ROOT), "archive", commit, "efo", "service"]
    return subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603
