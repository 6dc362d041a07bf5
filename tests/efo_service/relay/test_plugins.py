"""Sinks of other packages: how they are found and opened. The example of a package is in examples/sink-sqlite."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from efo.errors import ConfigurationError
from efo.model import Checkpoint
from efo_service.config.loading import load, load_all
from efo_service.factories.sinks import open_sink
from efo_service.relay.conformance import commit
from efo_service.relay.plugins import check_sink, installed_sinks, load_sink
from tests.paths import ROOT

EXAMPLE = ROOT / "examples/sink-sqlite"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Make entry points, as an installed package has them."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    site = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(str(site))

    def install(package: str, *points: str) -> None:
        directory = site / f"{package}-1.0.dist-info"
        directory.mkdir(parents=True)
        directory.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        directory.joinpath("entry_points.txt").write_text("\n".join(["[efo.sinks]", *points, ""]))

    return install


@pytest.fixture
def load_text(tmp_path):
    def load_text(text: str):
        path = tmp_path / "efo.toml"
        path.write_text(text)
        return load(path)

    return load_text


def test_the_sinks_of_efo_are_always_installed():
    assert installed_sinks()[:3] == ("log", "jsonl", "kafka")
    for name in ("log", "jsonl", "kafka"):
        check_sink(name)


def test_an_unknown_sink_is_refused_with_the_installed_ones(install, load_text):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    with pytest.raises(ConfigurationError) as caught:
        load_text('[kinesis]\nstream = "orders"\n[relay]\nsink = "sqlight"')
    assert ":4: [relay] sink: 'sqlight' is not an installed sink" in str(caught.value)
    assert str(caught.value).endswith("choose one of log, jsonl, kafka, sqlite")


def test_options_are_only_for_sinks_of_other_packages(load_text):
    with pytest.raises(ConfigurationError, match='sink = "log" has none, remove them'):
        load_text('[kinesis]\nstream = "orders"\n[relay.options]\nfile = "x"')


def test_a_credential_among_the_options_is_refused_in_the_file(install, load_text):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    with pytest.raises(ConfigurationError, match="set EFO_RELAY__OPTIONS=") as caught:
        load_text('[kinesis]\nstream = "a"\n[relay]\nsink = "sqlite"\n[relay.options]\npassword = "hunter2"')
    assert "hunter2" not in str(caught.value)


def test_a_name_of_several_packages_is_refused(install):
    install("one", "same = efo_sink_sqlite:open_sqlite")
    install("other", "same = efo_sink_sqlite:Database")
    with pytest.raises(ConfigurationError, match="'same' is a sink of several packages: the package"):
        check_sink("same")


@pytest.mark.parametrize("point", ["broken = efo_sink_sqlite:nothing", "broken = no_such_module:open"])
def test_a_sink_that_cannot_be_loaded_names_its_package(install, point):
    install("efo-sink-broken", point)
    with pytest.raises(ConfigurationError, match="the sink 'broken' of the package efo-sink-broken cannot be loaded"):
        load_sink("broken")


async def test_a_sink_of_another_package_is_opened_with_its_options_and_keeps_positions(install, load_text, tmp_path):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    settings = load_text(
        f'[kinesis]\nstream = "orders"\n[relay]\nsink = "sqlite"\ntopic = "t"\n[relay.options]\nfile = "{tmp_path}/f"'
    )
    assert settings.relay.owns_positions
    async with (
        open_sink(settings) as destination,
        destination.sink.open("orders", "shardId-000000000000", Checkpoint.TRIM_HORIZON) as shard,
    ):
        await commit(shard, 3)
        assert shard.position is not None
    connection = sqlite3.connect(tmp_path / "f")
    assert connection.execute("SELECT count(*), min(topic) FROM record").fetchone() == (3, "t")
    connection.close()


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_function_that_returns_no_context_manager_is_reported_with_its_package(
    install, load_text, tmp_path, monkeypatch, kind
):
    tmp_path.joinpath("efo_sink_bare.py").write_text(f"{kind} open_bare(options, context): return 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "efo_sink_bare", raising=False)
    install("efo-sink-bare", "bare = efo_sink_bare:open_bare")
    settings = load_text('[kinesis]\nstream = "orders"\n[relay]\nsink = "bare"')
    found = "the sink 'bare' of the package efo-sink-bare returned no async context manager"
    with pytest.raises(ConfigurationError, match=found):
        async with open_sink(settings):
            pass


def test_two_streams_cannot_have_the_same_sink_topic_and_options(install, tmp_path):
    install("efo-sink-sqlite", "sqlite = efo_sink_sqlite:open_sqlite")
    path = tmp_path / "efo.toml"
    text = '[relay]\nsink = "sqlite"\n[relay.options]\nfile = "f"\n[streams.a]\n[streams.b]\n'
    path.write_text(text)
    assert set(load_all(path).streams) == {"a", "b"}
    path.write_text(text + '[streams.b.relay]\ntopic = "a"')
    with pytest.raises(ConfigurationError, match="the topic 'a' of the sink 'sqlite' with the same options"):
        load_all(path)


@pytest.mark.e2e
def test_the_tests_of_the_example_pass():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "pythonpath=.",
        "-o",
        "trio_mode=true",
    ]
    done = subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(EXAMPLE), str(EXAMPLE / "tests")],
        cwd=EXAMPLE,
        env={"PYTHONPATH": f"{EXAMPLE}:{ROOT}:{ROOT / 'service'}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
