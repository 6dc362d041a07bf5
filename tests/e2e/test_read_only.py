"""A service whose root file system is read-only: it writes to the places of its settings, and to TMPDIR."""

from __future__ import annotations

import signal
import sys

import pytest

from efo_service.exit_codes import Exit
from tests.e2e.running import relayed, running

pytestmark = pytest.mark.e2e

# An audit hook sees what Python opens for writing, makes and renames, also as root, who may write anywhere.
AUDIT = """
import os, sys

FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT
SEEN = os.open(os.environ["AUDITED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def hook(name, arguments):
    if name == "open" and (arguments[2] or 0) & FLAGS or name in {"os.mkdir", "os.rename", "sqlite3.connect"}:
        path = arguments[0]
        if isinstance(path, (str, bytes)) and os.fsdecode(path) != os.devnull:
            os.write(SEEN, os.path.abspath(os.fsdecode(path)).encode() + b"\\n")

sys.addaudithook(hook)
"""


async def test_a_service_writes_only_where_its_settings_say(fake, files, tmp_path):
    places = {name: tmp_path / name for name in ("data", "home", "work", "tmp", "hook")}
    for place in places.values():
        place.mkdir()
    (places["hook"] / "sitecustomize.py").write_text(AUDIT)
    audited = tmp_path / "audited"
    for name in ("home", "work"):
        places[name].chmod(0o555)
    fake.put_many("orders", [(f"key-{number}", b"x") for number in range(100)])
    environment = {
        "EFO_LEASES__PATH": str(places["data"] / "leases.sqlite"),
        "EFO_RELAY__DIRECTORY": str(files.directory / "log"),
        "HOME": str(places["home"]),
        "TMPDIR": str(places["tmp"]),
        "PYTHONPATH": ":".join([str(places["hook"]), *sys.path]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AUDITED": str(audited),
    }
    async with running(files, cwd=places["work"], **environment) as efo:
        await efo.until(lambda: relayed(files) == 100)
        efo.process.send_signal(signal.SIGTERM)
        assert await efo.ended() == Exit.OK, efo.stderr
    assert list(places["home"].iterdir()) == list(places["work"].iterdir()) == []
    written = set(audited.read_text().splitlines())
    allowed = tuple(str(place) for place in (places["data"], files.directory / "log", places["tmp"]))
    assert any(path.startswith(allowed[1]) for path in written)  # the hook sees
    assert sorted(path for path in written if not path.startswith(allowed)) == []
