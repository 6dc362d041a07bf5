"""What is checked of an image: its commands, a service that starts and drains, and Spark on the log that it wrote."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from efo.testing import FakeKinesisThread
from efo_service.version import VERSION
from proofs.image.container import Container

RECORDS: Final = 1000
_SECONDS: Final = 180.0
_WRITE: Final = "import pathlib, sys; pathlib.Path(sys.argv[1], 'written').write_text('')"


class CheckError(Exception):
    """The image does not do what it must."""


def check_commands(container: Container, entry: str) -> None:
    """Check what needs no service. Raises CheckError and CalledProcessError."""
    if VERSION not in container.output([entry, "version"]):
        raise CheckError(f"{entry} version does not print {VERSION}")
    if "--ready" not in container.output([entry, "healthcheck", "--help"]):
        raise CheckError("efo healthcheck --help does not show --ready")
    shown = json.loads(container.output([entry, "check-config", "--json"], EFO_KINESIS__STREAM="orders"))
    if shown["service"]["host"] != "0.0.0.0":  # noqa: S104 - the image's own setting
        raise CheckError("the image does not listen on all interfaces")
    _refuses_writes(container, str(Path(entry).parent))


def _refuses_writes(container: Container, directory: str) -> None:
    """Check that the image's own files cannot be changed, and that its volume can."""
    python = f"{directory}/python"
    container.output([python, "-c", _WRITE, str(container.var)])
    (container.var / "written").unlink()
    tried = container.command([python, "-c", _WRITE, f"{container.root}{directory}"])
    if (
        container.isolated
        and not subprocess.run(tried, **container.options({}), capture_output=True, check=False).returncode
    ):
        raise CheckError(f"{directory} can be written to")


def check_service(container: Container, start: list[str], health: list[str], stop: str) -> dict[str, Any]:
    """Relay records of a fake into the log, ask for the health, and drain. Return what was seen. Raises CheckError."""
    with FakeKinesisThread() as fake, socket.create_server(("127.0.0.1", 0)) as free:
        fake.create_stream("orders", 2)
        fake.put_many("orders", [(f"key-{number}", b"x") for number in range(RECORDS)])
        port = free.getsockname()[1]
        free.close()
        variables = _reading(fake, container, port)
        log = container.root / "service.log"
        began = time.monotonic()
        with log.open("wb") as out:
            process = subprocess.Popen(
                container.command(start), **container.options(variables), stdout=out, stderr=subprocess.STDOUT
            )
            try:
                _until(lambda: relayed(container.var / "var/log") == RECORDS, process, log)
                took = round(time.monotonic() - began, 1)
                alive = container.output(health, **variables).strip()
                ready = container.output([*health, "--ready"], **variables).strip()
                process.send_signal(signal.Signals[stop])
                status = process.wait(_SECONDS)
            finally:
                process.kill()
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    if (alive, ready, status, events[-1]) != ("alive", "ready", 0, "stopped"):
        raise CheckError(f"expected alive, ready, 0 and stopped: {alive}, {ready}, {status} and {events[-1]}; {log}")
    return {"records": RECORDS, "relayed_after_seconds": took, "exit_status": status}


def check_spark(container: Container, start: list[str], log: Path) -> dict[str, Any]:
    """Land the log that a service wrote as Parquet. Return what was seen. Raises CheckError."""
    import pyarrow.dataset  # noqa: PLC0415 - only this check needs it

    shutil.copytree(log, container.var / "var/log")
    if container.isolated:
        subprocess.run(["chown", "-R", "10001:10001", str(container.var)], check=True)  # noqa: S607
    short = {"EFO_PIPELINE__AVAILABLE_NOW": "true", "EFO_PIPELINE__QUICK_START": "true"}
    container.output(start, EFO_KINESIS__STREAM="orders", **short)
    landed = pyarrow.dataset.dataset(container.var / "var/parquet/records", format="parquet").count_rows()
    if landed != RECORDS:
        raise CheckError(f"{landed} records landed, not {RECORDS}")
    return {"landed": landed}


def relayed(log: Path) -> int:
    """Return the number of records in a log, from the names of its segments."""
    ranges = (path.name.split(".")[0].split("-")[:2] for path in log.rglob("*.arrow"))
    return sum(int(end) - int(base) for base, end in ranges)


def _reading(fake: FakeKinesisThread, container: Container, port: int) -> Mapping[str, str]:
    ca_file = container.var / "ca.pem"
    shutil.copyfile(str(fake.ca_file), ca_file)
    ca_file.chmod(0o644)
    return {
        "AWS_ACCESS_KEY_ID": "AKIDTEST",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "EFO_KINESIS__STREAM": "orders",
        "EFO_KINESIS__REGION": "us-east-1",
        "EFO_KINESIS__ENDPOINT_URL": fake.url,
        "EFO_KINESIS__CA_FILE": str(ca_file),
        "EFO_SERVICE__PORT": str(port),
        "EFO_SERVICE__GROUP_ACCESS": "none",
    }


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise CheckError(f"the service did not relay the records; its log ends: {log.read_text()[-3000:]}")
        time.sleep(0.05)
