"""What is checked of an image: its files and rights, a service that relays and drains, and Spark on its log."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from efo.testing import FakeKinesisThread
from efo_service.version import VERSION
from proofs.image.container import Container
from proofs.image.engine import Image
from proofs.local_servers.kafka import read_topic

RECORDS: Final = 1000
STREAM: Final = "orders"
BILL: Final = "opt/sbom.cdx.json"
_SECONDS: Final = 300.0
_NAME: Final = "service"
_RIGHTS: Final = (
    "import os, sys\n"
    "lines = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
    "print(os.getuid(), lines['CapEff'].strip(), lines['CapBnd'].strip(), lines['NoNewPrivs'].strip())"
)
_WRITE: Final = (
    "import pathlib, sys\n"
    "for path in sys.argv[1:]:\n"
    "    try: pathlib.Path(path, 'written').write_text(''); print(path, 'written')\n"
    "    except OSError as error: print(path, error.strerror)"
)


class CheckError(Exception):
    """The image does not do what it must."""


def check_files(image: Image, unwanted: frozenset[str]) -> dict[str, Any]:
    """Check what is in an image, and return its measures. `unwanted`: packages of Python it must not have."""
    files = [path for path in image.root.rglob("*") if not path.is_symlink() and path.is_file()]
    found = [str(path) for path in files if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    found += [str(path) for path in image.root.rglob("*") if path.name in {"ensurepip", "pip", *unwanted}]
    found += [str(path) for path in files if path.suffix == ".whl"]
    if found:
        raise CheckError(f"{image.name} must not have {found[:5]}")
    bill = json.loads((image.root / BILL).read_text())
    listed = {unquote(one["purl"].partition("@")[0]).removeprefix("pkg:") for one in bill["components"]}
    expected = {f"pypi/{_of_info(path)}" for path in (image.root / "opt/efo").rglob("*.dist-info")}
    # dpkg has a list of the files of each package.
    lists = (image.root / "var/lib/dpkg/info").glob("*.list")
    expected |= {f"deb/debian/{path.stem.partition(':')[0]}" for path in lists}
    if missing := expected - listed:
        raise CheckError(f"{BILL} does not list {sorted(missing)[:5]}")
    sizes = {(at.st_dev, at.st_ino): at.st_size for at in (path.stat() for path in files)}
    own = sum(path.stat().st_size for path in files if path.is_relative_to(image.root / "opt"))
    return {"mib": _mebibytes(sum(sizes.values())), "opt_mib": _mebibytes(own), "components": len(bill["components"])}


def _of_info(path: Path) -> str:
    return path.name.removesuffix(".dist-info").rpartition("-")[0].replace("_", "-").replace(".", "-").lower()


def _mebibytes(size: int) -> float:
    return round(size / 2**20, 1)


def check_rights(container: Container) -> None:
    """Check the user, its rights, and that only the volume and /tmp can be written to. Raises CheckError."""
    python, volume = "/opt/efo/bin/python", next(iter(container.image.config["Volumes"]))
    rights = container.output([python, "-c", _RIGHTS]).split()
    if rights != [str(container.user), "0" * 16, "0" * 16, "1"] or container.user == 0:
        raise CheckError(f"user, capabilities and no_new_privs are {rights}")
    said = container.output([python, "-c", _WRITE, "/", "/opt/efo/bin", "/etc", volume, "/tmp"]).splitlines()  # noqa: S108
    if [line.rpartition(" ")[2] for line in said] != [*["system"] * 3, *["written"] * 2]:
        raise CheckError(f"expected a read-only file system but for {volume} and /tmp: {said}")
    (container.volume / "written").unlink()


def check_commands(container: Container) -> None:
    """Check what needs no service. Raises CheckError and CalledProcessError."""
    [entry] = container.image.config["Entrypoint"]
    if VERSION not in container.output([entry, "version"]):
        raise CheckError(f"{entry} version does not print {VERSION}")
    shown = json.loads(container.output([entry, "check-config", "--json"], EFO_KINESIS__STREAM=STREAM))
    if shown["service"]["host"] != "0.0.0.0":  # noqa: S104 - the image's own setting
        raise CheckError("the image does not listen on all interfaces")


def check_service(container: Container, has_relayed: Callable[[], bool], **sink: str) -> dict[str, Any]:
    """Relay records of a fake, ask for the health, and drain. Return what was seen. Raises CheckError."""
    image = container.image
    with FakeKinesisThread() as fake, socket.create_server(("127.0.0.1", 0)) as free:
        fake.create_stream(STREAM, 2)
        fake.put_many(STREAM, [(f"key-{number}", b"x") for number in range(RECORDS)])
        port = free.getsockname()[1]
        free.close()
        variables = {**_reading(fake, container, port), **sink}
        log = container.work / "service.log"
        began = time.monotonic()
        with log.open("wb") as out:
            process = container.start(_NAME, image.start, variables, out)
            try:
                _until(has_relayed, process, log)
                took = round(time.monotonic() - began, 1)
                alive = container.exec(_NAME, image.health).strip()
                ready = container.exec(_NAME, [*image.health, "--ready"]).strip()
                container.signal(_NAME, image.config["StopSignal"])
                status = process.wait(_SECONDS)
            finally:
                container.remove(_NAME)
                process.wait(_SECONDS)
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    if (alive, ready, status, events[-1]) != ("alive", "ready", 0, "stopped"):
        raise CheckError(f"expected alive, ready, 0 and stopped: {alive}, {ready}, {status} and {events[-1]}; {log}")
    return {"records": RECORDS, "relayed_after_seconds": took, "exit_status": status}


def check_log(container: Container) -> dict[str, Any]:
    """Relay into the log on the volume. See check_service."""
    return check_service(container, lambda: relayed(container.volume / "var/log") == RECORDS)


def check_kafka(container: Container, servers: str) -> dict[str, Any]:
    """Relay into Kafka. See check_service."""
    sink = {"EFO_RELAY__KAFKA__BOOTSTRAP_SERVERS": servers, "EFO_RELAY__KAFKA__REPLICATION_FACTOR": "1"}

    def has_relayed() -> bool:
        try:
            return len(read_topic(servers, STREAM)) == RECORDS
        except KeyError:  # the topic is not there yet
            return False

    return check_service(
        container, has_relayed, **sink, EFO_RELAY__TOPIC=STREAM, EFO_RELAY__KAFKA__CREATE_TOPICS="true"
    )


def check_refusal(container: Container) -> None:
    """Check that an image without the log refuses to write one, with a sentence. Raises CheckError."""
    with (container.work / "refusal.log").open("w+b") as out:
        process = container.start(
            "refusal", container.image.start, {"EFO_KINESIS__STREAM": STREAM, "EFO_RELAY__SINK": "log"}, out
        )
        status = process.wait(_SECONDS)
        out.seek(0)
        said = out.read().decode()
    if status != 69 or "pyarrow" not in said or "Traceback" in said:  # noqa: PLR2004 - Exit.UNAVAILABLE
        raise CheckError(f"expected exit status 69 and a sentence about pyarrow: {status}, {said[-2000:]}")


def check_spark(container: Container, log: Path) -> dict[str, Any]:
    """Land the log that a service wrote as Parquet. Return what was seen. Raises CheckError."""
    import pyarrow.dataset  # noqa: PLC0415 - only this check needs it

    # The example projects run the fake in this image.
    container.output(["/opt/efo/bin/python", "-c", "import efo_service.commands.options as e; e.require_fake()"])
    shutil.copytree(log, container.volume / "var/log")
    for path in container.volume.rglob("*"):
        os.chown(path, container.user, container.user)
    container.output(container.image.start, EFO_KINESIS__STREAM=STREAM, EFO_PIPELINE__AVAILABLE_NOW="true")
    landed = pyarrow.dataset.dataset(container.volume / "var/parquet/records", format="parquet").count_rows()
    if landed != RECORDS:
        raise CheckError(f"{landed} records landed, not {RECORDS}")
    return {"landed": landed}


def relayed(log: Path) -> int:
    """Return the number of records in a log, from the names of its segments."""
    ranges = (path.name.split(".")[0].split("-")[:2] for path in log.rglob("*.arrow"))
    return sum(int(end) - int(base) for base, end in ranges)


def _reading(fake: FakeKinesisThread, container: Container, port: int) -> Mapping[str, str]:
    ca_file = container.volume / "ca.pem"
    shutil.copyfile(str(fake.ca_file), ca_file)
    ca_file.chmod(0o644)
    volume = next(iter(container.image.config["Volumes"]))
    return {
        "AWS_ACCESS_KEY_ID": "AKIDTEST",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "EFO_KINESIS__STREAM": STREAM,
        "EFO_KINESIS__REGION": "us-east-1",
        "EFO_KINESIS__ENDPOINT_URL": fake.url,
        "EFO_KINESIS__CA_FILE": f"{volume}/ca.pem",
        "EFO_SERVICE__PORT": str(port),
        "EFO_SERVICE__GROUP_ACCESS": "none",
    }


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise CheckError(f"the service did not relay the records; its log ends: {log.read_text()[-3000:]}")
        time.sleep(0.2)
