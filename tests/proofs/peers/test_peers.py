from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from proofs.peers.__main__ import parse
from proofs.peers.figures import Timing
from proofs.peers.peers import BASE, PEERS, PROGRAMS, Peer
from proofs.peers.runner import FIGURES, PARTS
from tests.paths import ROOT

PROJECT = "{http://maven.apache.org/POM/4.0.0}"
FILES = ["go/go.mod", "go/go.sum", "java/pom.xml", "kclpy/pom.xml"]


def test_every_peer_has_a_program_a_version_and_a_unique_name():
    names = [peer.name for peer in PEERS]
    assert names[0] == BASE
    assert len(set(names)) == len(names)
    for peer in PEERS:
        assert (PROGRAMS / peer.source).is_dir()
        assert peer.version


def test_programs_in_python_are_compiled_as_those_in_other_languages_are():
    assert all(peer.build for peer in PEERS)


def test_what_is_missing_is_named():
    assert Peer("x", "1", "go", (), needs=("sh", "no-such-compiler")).missing() == "not found: no-such-compiler"
    assert Peer("x", "1", "go", (), needs=("sh", str(ROOT))).missing() is None


def test_a_reason_counts_for_the_parts_of_its_figure():
    peer = Peer("x", "1", "go", (), cannot={"idle/100": "why", "throughput": "polls"})
    assert peer.reason("idle/100") == "why"
    assert peer.reason("idle/1000") is None
    assert peer.reason("throughput/200B") == "polls"
    assert peer.reason("start/4") is None


def test_a_jvm_has_a_larger_heap_for_many_shards():
    peer = Peer("x", "1", "java", ("java", "Program"), arguments=("crt",), heap="-Xmx1g", large_heap="-Xmx4g")
    assert peer.command(Path("config.json"), 100) == ("java", "-Xmx1g", "Program", "config.json", "crt")
    assert peer.command(Path("config.json"), 1000) == ("java", "-Xmx4g", "Program", "config.json", "crt")


def test_a_jvm_without_a_larger_heap_keeps_its_own():
    peer = Peer("x", "1", "java", ("java", "Program"), heap="-Xmx1g")
    assert peer.command(Path("config.json"), 1000) == ("java", "-Xmx1g", "Program", "config.json")


def test_a_command_with_a_slash_is_a_file_of_the_directory():
    peer = Peer("x", "1", "go", ("bin/raw",))
    assert peer.command(Path("config.json"), 4) == (str(peer.directory / "bin/raw"), "config.json")


def test_every_reason_is_for_a_part_that_exists():
    parts = {*FIGURES, *PARTS, "correctness/kill"}
    assert {part for peer in PEERS for part in peer.cannot} <= parts


@pytest.mark.parametrize("pom", ["java/pom.xml", "kclpy/pom.xml"])
def test_maven_versions_are_pinned(pom):
    root = ET.parse(PROGRAMS / pom).getroot()  # noqa: S314 - a file of this repository
    versions = [
        node.findtext(f"{PROJECT}version") for node in root.iter() if node.tag.endswith(("}dependency", "}plugin"))
    ]
    assert versions
    assert all(re.fullmatch(r"\d+(\.\d+)+", version or "") for version in versions), versions


def test_the_versions_in_the_table_are_those_that_are_installed():
    pins = "\n".join(
        [Path(PROGRAMS, file).read_text() for file in ("go/go.mod", "java/pom.xml")]
        + [(ROOT / "requirements" / lock).read_text() for lock in ("peers.txt", "peers-kclpy.txt", "kcl-rs.txt")]
    )
    for peer in PEERS:
        for version in re.findall(r"v?\d+\.\d+\.\d+\S*\b", peer.version):
            assert version in pins, peer.version


@pytest.mark.parametrize("file", FILES)
def test_lock_files_name_no_registry(file):
    found = re.findall(r"https?://([^/\s\"]+)", (PROGRAMS / file).read_text())
    assert set(found) <= {"maven.apache.org", "www.w3.org"}


def test_the_command_line_takes_peers_figures_and_parts():
    options = parse(["kcl", "boto3", "--figures", "latency,start/4", "--seconds", "2"])
    assert options.peers == ["kcl", "boto3"]
    assert options.figures == ("latency", "start/4")
    assert parse([]).figures == FIGURES


@pytest.mark.parametrize("arguments", [["kafka"], ["--figures", "speed"], ["--seconds", "0"], ["--rounds", "x"]])
def test_a_wrong_command_line_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        parse(arguments)
    assert exit_.value.code == 2
    assert "error" in capsys.readouterr().err


def test_the_help_has_an_example(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    assert "python -m proofs.peers kcl boto3 --figures" in capsys.readouterr().out


def test_the_warm_up_is_the_peers_unless_one_is_given():
    peer = Peer("x", "1", "go", (), warm=30.0)
    assert Timing(5.0).warm_of(peer) == 30.0
    assert Timing(5.0, 2.0).warm_of(peer) == 2.0
