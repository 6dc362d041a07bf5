"""The checks of `make release-check` find what a release must not have."""

from __future__ import annotations

import os
import sys
import zipfile

import pytest

from proofs.release import checkout
from proofs.release.__main__ import checks
from proofs.release.artifacts import (
    Artifacts,
    check_contents,
    check_description,
    check_repository,
    first_program,
    names_of,
    read_lines,
)
from proofs.release.commands import CheckError, run

GOOD = {
    "efo/__init__.py",
    "efo/__init__.pyi",
    "efo/py.typed",
    "efo_service/py.typed",
    "pyspark_efo.py",
    "efo-0.1.0.dist-info/METADATA",
}
WORKFLOW = """
jobs:
  check:
    steps:
      - uses: actions/checkout@{commit}
      - run: make {target}
"""
PINNED = "1" * 40


def test_a_wheel_of_efo_alone_is_right():
    assert check_contents(GOOD) == "5 files"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (GOOD | {"numpy/__init__.py"}, "what is not efo"),
        (GOOD | {"efo/tests/test_model.py"}, "tests or proofs"),
        (GOOD | {"efo/conftest.py"}, "tests or proofs"),
        (GOOD - {"efo/py.typed"}, "lacks efo/py.typed"),
        (GOOD - {"efo/__init__.pyi"}, "lacks efo/__init__.pyi"),
    ],
)
def test_a_wheel_with_more_or_less_is_refused(names, message):
    with pytest.raises(CheckError, match=message):
        check_contents(names)


def test_directories_are_no_files_of_a_wheel(tmp_path):
    with zipfile.ZipFile(tmp_path / "efo.whl", "w") as archive:
        archive.writestr("efo/", "")
        archive.writestr("efo/model.py", "")
    assert names_of(tmp_path / "efo.whl") == {"efo/model.py"}


def test_a_long_description_has_absolute_links_and_says_that_it_is_markdown():
    assert check_description("text/markdown", "[a](https://x.y) [b](#part)") == "2 links, none of them relative"
    with pytest.raises(CheckError, match=r"1 relative links.*docs/kcl\.md"):
        check_description("text/markdown", "[a](https://x.y) [b](docs/kcl.md)")
    with pytest.raises(CheckError, match="without a type"):
        check_description("", "")


@pytest.mark.parametrize(
    ("address", "tag", "sentence"),
    [
        ("https://code.example/efo", "v0.1.0", "they lead to https://code.example/efo"),
        ("https://efo.invalid/efo", "", "to be confirmed in Repository of [project.urls] in pyproject.toml"),
    ],
)
def test_the_address_of_the_repository_is_confirmed_at_a_release(address, tag, sentence):
    assert check_repository([f"Repository, {address}"], tag).endswith(sentence)


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (["Repository, https://efo.invalid/efo"], r"cannot exist: write .* pyproject\.toml"),
        (["Repository, git@code.example:efo"], "not an address that begins with https://"),
        ([], "is '', not an address"),
    ],
)
def test_a_release_without_an_address_of_the_repository_is_refused(urls, message):
    with pytest.raises(CheckError, match=message):
        check_repository(urls, "v0.1.0")


def test_the_first_program_of_the_readme_reads_what_is_there():
    program = first_program('## Read a stream\n\n```python\nefo.consume(application="billing")\n```\n')
    assert program == 'efo.consume(application="billing", initial_position=efo.TRIM_HORIZON)\n'
    with pytest.raises(CheckError, match="no program"):
        first_program("# efo")


@pytest.mark.parametrize(("lines", "is_enough"), [(25, True), (3, False)])
def test_a_program_is_stopped_when_it_has_printed_enough_and_fails_when_it_ends_before(tmp_path, lines, is_enough):
    (tmp_path / "program.py").write_text(f"for n in range({lines}): print(n)\nif {lines} > 20:\n    input()\n")
    if is_enough:
        assert read_lines([sys.executable, "program.py"], tmp_path, {}) == 20
    else:
        with pytest.raises(CheckError, match="printed 3 of 20"):
            read_lines([sys.executable, "program.py"], tmp_path, {})


def test_what_a_command_printed_is_in_the_message_of_its_failure(tmp_path):
    with pytest.raises(CheckError, match=r"(?s)ended with 3:\nbroken"):
        run([sys.executable, "-c", "import sys; print('broken'); sys.exit(3)"], cwd=tmp_path)
    with pytest.raises(CheckError, match="does not start"):
        run([tmp_path / "none"])
    assert run([sys.executable, "-c", "print(1)"]) == "1\n"


def test_a_command_that_does_not_end_is_killed_with_the_processes_that_it_started(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(CheckError, match="did not end in 1 s"):
        run(["/bin/sh", "-c", "sleep 1000 >pipe & wait"], cwd=tmp_path, timeout=1.0)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # when no process has the other end
    os.close(reader)


@pytest.mark.parametrize(
    ("commit", "target", "message"),
    [("v4", "test", "is not pinned to a commit"), (PINNED, "tset", "no target of make is tset")],
)
def test_an_action_that_is_not_pinned_and_a_target_that_does_not_exist_are_found(
    tmp_path, monkeypatch, commit, target, message
):
    monkeypatch.setattr(checkout, "WORKFLOWS", tmp_path)
    (tmp_path / "ci.yml").write_text(WORKFLOW.format(commit=commit, target=target))
    with pytest.raises(CheckError, match=message):
        checkout.workflows()


def test_the_workflows_of_this_repository_pin_each_action_and_name_targets_that_exist(monkeypatch):
    monkeypatch.setattr(checkout, "run", lambda *_arguments: "")
    assert checkout.workflows().startswith("3 files")


def test_the_version_is_the_same_in_every_place_and_a_tag_must_be_it():
    version = checkout.versions()
    with pytest.raises(CheckError, match=r"versions differ.*the tag 9\.9\.9"):
        checkout.versions("v9.9.9")
    assert version.count(".") == 2


def test_images_are_left_out_when_no_target_is_named(tmp_path):
    names = list(checks(Artifacts(tmp_path), tmp_path, "", ""))
    assert "images" not in names
    assert names[:4] == ["versions", "workflows", "sdist", "wheel"]
