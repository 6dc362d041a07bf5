"""Which step reads: efo-native if its version is efo's, and why not otherwise."""

import sys
import tomllib
from importlib.metadata import version
from types import ModuleType

import pytest

from efo.protocol import native
from tests.paths import ROOT


@pytest.fixture
def installed(monkeypatch):
    """Install a module efo_native of this version."""

    def install(found, step=lambda _record: object()):
        module = ModuleType("efo_native")
        module.__version__ = found
        module.Step = step
        monkeypatch.setitem(sys.modules, "efo_native", module)

    monkeypatch.delenv("EFO_NATIVE", raising=False)
    return install


def test_the_native_step_of_this_version_reads(installed):
    installed(native.VERSION)
    decoder = native._load()
    assert (decoder.name, decoder.detail) == ("native", f"native: efo-native {native.VERSION}")
    assert decoder.step is not None


def test_another_version_is_not_used_and_has_a_remedy(installed):
    installed("0.0.9")
    decoder = native._load()
    assert (decoder.step, decoder.name) == (None, "python")
    assert decoder.detail == f"python: efo-native 0.0.9 is installed, and this efo needs {native.VERSION}"
    assert decoder.remedy == f"install efo-native {native.VERSION}, or remove it"


def test_one_that_cannot_make_records_is_not_used(installed):
    def refuse(_record):
        raise TypeError("the class of records is laid out in another way")

    installed(native.VERSION, refuse)
    decoder = native._load()
    assert (decoder.step, decoder.remedy) == (None, "")
    assert decoder.detail == "python: this version of msgspec makes records in a way that efo-native does not know"


def test_a_variable_turns_it_off(installed, monkeypatch):
    installed(native.VERSION)
    monkeypatch.setenv("EFO_NATIVE", "0")
    assert native._load() == (None, "python: EFO_NATIVE is 0", "")


def test_without_it_the_python_step_reads(monkeypatch):
    monkeypatch.delenv("EFO_NATIVE", raising=False)
    monkeypatch.setattr(native, "import_module", missing)
    assert native._load() == (None, "python: efo-native is not installed", "")


def test_one_that_cannot_be_imported_has_a_remedy(monkeypatch):
    monkeypatch.delenv("EFO_NATIVE", raising=False)
    monkeypatch.setattr(native, "import_module", broken)
    decoder = native._load()
    assert decoder.detail == "python: efo-native cannot be imported: ImportError"
    assert decoder.remedy


def missing(name):
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def broken(_name):
    raise ImportError("/home/somebody/efo_native.so: wrong ELF class")


def test_all_that_name_its_version_name_that_of_efo():
    cargo = tomllib.loads((ROOT / "native/Cargo.toml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert native.VERSION == version("efo") == cargo["workspace"]["package"]["version"]
    assert project["optional-dependencies"]["native"] == [f"efo-native=={native.VERSION}"]
