"""Records what `efo doctor`, `efo tail` and `efo top` show in a terminal, as the SVG pictures of the README.

`python tools/terminal_pictures.py --write` runs them on a fake Kinesis with a running service and a producer, and
writes docs/pictures/*.svg. Nothing is drawn by hand: a pseudo-terminal records the bytes, and rich renders them. Of the
text, only the path of the temporary directory is replaced. The pictures need no font from elsewhere.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fcntl import ioctl
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ
from threading import Event, Thread
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

from efo.testing import FakeKinesisThread

PICTURES: Final = Path(__file__).parent.parent / "docs" / "pictures"
COMMANDS: Final = {
    "doctor": "efo doctor --config efo.toml",
    "tail": "efo tail orders --from -15m --limit 10",
    "top": "efo top --config efo.toml --once",
}
WIDTH: Final = 104
"""Columns of the terminal."""
READY_TIMEOUT: Final = 120.0
TRIALS: Final = 10
_SHOWN_DIRECTORY: Final = "/srv/orders"
_FORMAT: Final = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
    "Fira Code, monospace", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
)
"""rich's picture, with fonts that a reader has."""
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[()][A-Z0-9]|\x1b[=>]")
"""Control sequences other than colours."""
_CONFIGURATION: Final = """\
[kinesis]
stream = "orders"
ca_file = "ca.pem"
[leases]
path = "var/leases.sqlite"
worker_id = "worker-1"
[relay]
directory = "var/log"
[service]
port = {port}
"""


def picture(name: str, output: str) -> str:
    """Return the SVG of a terminal in which a command was entered and printed this output."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {COMMANDS[name]}"))
    for line in without_control(output).rstrip("\n").split("\n"):
        console.print(Text.from_ansi(line), soft_wrap=True)
    text = console.export_svg(title=f"efo {name}", code_format=_FORMAT, unique_id=name)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def without_control(output: str) -> str:
    """Return what stays in a terminal, with its colours: lines that were overwritten, as a progress is, are gone."""
    lines: list[str] = []
    for line in output.replace("\r\n", "\n").split("\n"):
        *before, last = line.split("\x1b[1A")  # one line up
        del lines[len(lines) - len(before) :]
        lines.append(last.rpartition("\r")[2])
    return _CONTROL.sub("", "\n".join(lines))


def recorded(command: str, directory: Path, environment: Mapping[str, str]) -> str:
    """Return what a command writes to a terminal of its own. Raises CalledProcessError."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, pack("HHHH", 60, WIDTH, 0, 0))
    process = subprocess.Popen(
        command.split(), cwd=directory, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    output = b""
    with suppress(OSError):  # Linux: the other side is closed
        while chunk := os.read(ours, 65536):
            output += chunk
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command, output)
    return output.decode().replace(str(directory), _SHOWN_DIRECTORY)


def _tried(command: str, directory: Path, environment: Mapping[str, str]) -> str:
    """Return what a command writes when it succeeds: on a busy machine, a check of `efo doctor` may be late."""
    for _ in range(TRIALS - 1):
        with suppress(subprocess.CalledProcessError):
            return recorded(command, directory, environment)
    return recorded(command, directory, environment)


@contextmanager
def orders(fake: FakeKinesisThread) -> Iterator[None]:
    """Put orders of forty customers, some hundred per second."""
    random_orders = random.Random(7)  # noqa: S311 - not secret
    ended = Event()

    def order(number: int) -> tuple[str, bytes]:
        customer = f"customer-{random_orders.randrange(40)}"
        status = random_orders.choice(["paid", "paid", "shipped", "cancelled"])
        fields = {"id": number, "customer": customer, "status": status, "price": random_orders.randrange(5, 200)}
        return customer, json.dumps(fields).encode()

    def put() -> None:
        number = 0
        while not ended.wait(0.05):
            fake.put_many("orders", [order(number + n) for n in range(20)])
            number += 20

    producer = Thread(target=put, daemon=True)
    producer.start()
    try:
        yield
    finally:
        ended.set()
        producer.join()


@contextmanager
def service(directory: Path, environment: Mapping[str, str], port: int) -> Iterator[None]:
    """Run `efo run`, and wait until it is ready."""
    log = directory / "efo.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            ["efo", "run", "--config", "efo.toml"],
            cwd=directory,
            env=dict(environment),
            stdout=file,
            stderr=file,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + READY_TIMEOUT
            while not _is_ready(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"efo run is not ready:\n{log.read_text()}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            return bool(response.status == 200)  # noqa: PLR2004 - OK
    except (URLError, OSError):
        return False


def record(port: int) -> dict[str, str]:
    """Return the SVG of each picture, from a real run. `port`: a free port of 127.0.0.1 for the service."""
    with tempfile.TemporaryDirectory() as temporary, FakeKinesisThread() as fake:
        directory = Path(temporary)
        assert fake.ca_file is not None  # noqa: S101 - it serves TLS
        shutil.copy(fake.ca_file, directory / "ca.pem")
        (directory / "efo.toml").write_text(_CONFIGURATION.format(port=port))
        own = {name: value for name, value in os.environ.items() if not name.startswith(("EFO_", "AWS_", "OTEL_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = own | fake.environment | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PATH": path}
        environment.pop("NO_COLOR", None)
        fake.create_stream("orders", shards=4)
        with orders(fake), service(directory, environment, port):
            outputs = {name: _tried(command, directory, environment) for name, command in COMMANDS.items()}
    return {name: picture(name, output) for name, output in outputs.items()}


def main() -> None:
    """Record the pictures, and write them if that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/pictures/*.svg")
    parser.add_argument("--port", type=int, default=8080, help="a free port of 127.0.0.1 for the service")
    arguments = parser.parse_args()
    for name, text in record(arguments.port).items():
        if arguments.write:
            PICTURES.mkdir(exist_ok=True)
            (PICTURES / f"{name}.svg").write_text(text, encoding="utf-8")
        print(f"{name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
