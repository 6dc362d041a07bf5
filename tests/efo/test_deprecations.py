"""A former name works and warns, wherever a user may write it, and no entry stays for longer than it says."""

from __future__ import annotations

import re
from types import MappingProxyType

import pytest

import efo
from efo import deprecations, lazy, model
from efo.deprecations import EfoDeprecationWarning, Renamed
from efo_service.config.loading import load
from tests.paths import ROOT

ENTRIES = MappingProxyType(
    {
        "efo.OldRecord": Renamed("efo.model.Record", "9.0"),
        "ConsumerSettings.old_seconds": Renamed("failover_seconds", "9.0"),
        "ConsumerSection.old_seconds": Renamed("poll_seconds", "9.0"),
        "LeaseSettings.old_scan": Renamed("lease_scan_seconds", "9.0"),
    }
)


@pytest.fixture
def renamed(monkeypatch):
    monkeypatch.setattr(deprecations, "RENAMED", ENTRIES)
    monkeypatch.setattr(lazy, "RENAMED", ENTRIES)


@pytest.mark.usefixtures("renamed")
def test_a_former_name_of_the_library_works_and_says_what_to_write():
    with pytest.warns(
        EfoDeprecationWarning, match=r"efo\.OldRecord is called efo\.model\.Record now.* efo 9\.0 "
    ) as seen:
        assert efo.OldRecord is model.Record
    assert seen[0].filename == __file__
    with pytest.raises(AttributeError):
        efo.NeverThere  # noqa: B018


@pytest.mark.usefixtures("renamed")
def test_a_former_setting_of_the_library_works_and_says_what_to_write():
    with pytest.warns(EfoDeprecationWarning, match="old_seconds is called failover_seconds now") as seen:
        assert efo.ConsumerSettings(old_seconds=3.0).failover_seconds == 3.0
    assert seen[0].filename == __file__
    with pytest.raises(efo.errors.ConfigurationError, match="they are one setting: write failover_seconds"):
        efo.ConsumerSettings(old_seconds=3.0, failover_seconds=3.0)
    with pytest.raises(TypeError, match="never_there"):
        efo.ConsumerSettings(never_there=1)


@pytest.mark.usefixtures("renamed")
def test_a_former_setting_of_the_service_works_in_the_file_and_in_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "efo.toml"
    path.write_text('[kinesis]\nstream = "a"\n[consumer]\napplication = "a"\nold_seconds = 3.0\n')
    monkeypatch.setenv("EFO_LEASES__OLD_SCAN", "2.5")
    with pytest.warns(EfoDeprecationWarning) as seen:
        settings = load(path)
    assert (settings.consumer.poll_seconds, settings.leases.lease_scan_seconds) == (3.0, 2.5)
    assert {str(one.message).split()[0] for one in seen} == {"old_seconds", "old_scan"}


def test_no_former_name_stays_for_longer_than_its_entry_says():
    version = re.search(r'^version = "(\d+)\.(\d+)', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    now = (int(version[1]), int(version[2]))
    late = [name for name, one in deprecations.RENAMED.items() if tuple(map(int, one.until.split(".")[:2])) <= now]
    assert late == []
