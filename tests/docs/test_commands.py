"""The commands of all pages: those of a page run one after the other in one shell, beside a fake Kinesis."""

from __future__ import annotations

import itertools
import os
import re
import subprocess

import pytest

from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.ports import free_port
from tests.paths import ROOT
from tools.docs import ledger
from tools.docs.examples import BESIDE_SERVICE, Command, examples
from tools.docs.pages import read_pages
from tools.docs.shell import Shell

EXAMPLES = [one for one in examples(read_pages()) if one.kind in {"command", "file"}]
PAGES = {page: list(found) for page, found in itertools.groupby(EXAMPLES, key=lambda one: one.block.page)}
MAKE = [
    pytest.param(one.command.text, id=one.place)
    for one in examples(read_pages())
    if one.kind == "left_out" and one.command is not None and one.command.text.startswith("make ")
]


SPARK = re.compile(r"\befo pipeline\b|\bpython spark_|\bvar/parquet\b")
"""Commands that start Spark or need what it writes. It takes half a minute: only `make docs` runs them."""


def runs_spark():
    try:
        find_java()
    except JavaMissingError:
        return False
    return ledger.VARIABLE in os.environ


@pytest.mark.e2e
@pytest.mark.page
@pytest.mark.parametrize("page", [page for page in PAGES if any(one.command for one in PAGES[page])])
def test_the_commands_do_what_the_page_says(page, reader, tmp_path):
    here = {
        "HOST:PORT": f"127.0.0.1:{reader['EFO_SERVICE__PORT']}",
        "4567": str(free_port()),
        "efo doctor ": "efo doctor --timeout 60 ",  # the machine may be busy
    }
    if any(one.command and one.command.text.startswith("export AWS_") for one in PAGES[page]):
        reader = {name: value for name, value in reader.items() if not name.startswith("AWS_")}  # the page sets them
    with Shell(tmp_path, reader, here) as shell:
        for example in PAGES[page]:
            if example.command is None:
                shell.write(example.block.mark.removeprefix("file:").strip(), example.block.text)
        if any(one.block.mark == BESIDE_SERVICE for one in PAGES[page]):
            shell.run(Command(page, "efo run --config config/efo.toml"))
        for example in PAGES[page]:
            if example.command is not None:
                if SPARK.search(example.command.text) and not runs_spark():
                    continue
                shell.run(example.command)
            ledger.note(example.place)


@pytest.mark.parametrize("command", MAKE)
def test_the_make_target_exists(command):
    dry = command.replace("make ", "make --dry-run ", 1)
    result = subprocess.run(dry, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S602 - our own page
    assert result.returncode == 0, result.stderr
