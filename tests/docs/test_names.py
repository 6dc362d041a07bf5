"""What pages name exists: metrics, lines of the log, settings and files of the service."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import get_args

import pytest

from efo.telemetry.outages import System
from efo_service.cli import app
from efo_service.config.section import section_of
from efo_service.config.settings import Settings
from tests.paths import ROOT

FOREIGN = {
    "parentbased_traceidratio", "remove_orphan_files", "search_path", "sso_region", "trio_mode",
}  # fmt: skip
"""Names of other software."""
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OUTAGES = re.compile(rf"({'|'.join(get_args(System))})_(outage_(began|changed|ended|given_up)|refused)")
"""Names of lines that are made of a system and of what happens to it."""


@cache
def words() -> frozenset[str]:
    """Return every word of the code, with the dots and underscores in it."""
    files = [path for folder in ("efo", "service", "proofs", "tools", "config") for path in (ROOT / folder).rglob("*")]
    code = [path for path in files if path.suffix in {".py", ".js", ".toml", ".yml", ".yaml", ".json", ".proto"}]
    return frozenset(word for path in code for word in re.findall(r"[A-Za-z_][\w.]*\w", path.read_text()))


def spans(page) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return set(_SPAN.findall(text))


def exists_in_python(name: str) -> bool:
    """Return whether a dotted name is a module of the library, or what one has."""
    module, _, attribute = name.rpartition(".")
    try:
        found = import_module(module)
    except ImportError:
        return exists_in_python(module) if "." in module else False
    if hasattr(found, attribute):
        return True
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def is_setting(name: str) -> bool:
    """Return whether it is an option of Spark that sets a setting: efo.SECTION.KEY."""
    _, section, *key = name.split(".")
    kind = section_of(Settings.model_fields[section]) if section in Settings.model_fields else None
    return kind is not None and len(key) == 1 and key[0] in kind.model_fields


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_metric_and_public_name_of_a_page_exists(page) -> None:
    named = {span for span in spans(page) if re.fullmatch(r"efo(\.[a-z0-9_]+)+", span)}
    named |= {span for span in spans(page) if re.fullmatch(r"efo_[a-z0-9_]+", span)}
    known = {*words(), *(word.replace(".", "_") for word in words())}
    endings = ("", "_total", "_seconds", "_bytes", "_count", "_bucket", "_seconds_total", "_bytes_total")
    missing = {
        name
        for name in named
        if not any(name.removesuffix(ending) in known for ending in endings)
        and not (exists_in_python(name) or is_setting(name))
    }
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_line_of_the_log_and_each_setting_of_a_page_exists(page) -> None:
    named = {span for span in spans(page) if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", span)}
    parts = {part for word in words() for part in word.split(".")}
    assert {name for name in named - FOREIGN if name not in parts and not OUTAGES.fullmatch(name)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_exists(page) -> None:
    for span in spans(page):
        found = re.match(r"efo ([a-z-]+)(?: ([a-z-]+))?(?: ([a-z-]+))?(?: |$)", span)
        if found is None:
            continue
        command = app
        for word in filter(None, found.groups()):
            if all(name.startswith("-") for name in command):
                break  # it has no commands of its own: an argument
            assert word in command, f"{page.name}: `{span}`"
            command = command[word]


def test_each_variable_of_a_setting_that_pages_and_proofs_write_is_one() -> None:
    folders = ("docs", "proofs", "examples", "config", "tools")
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".yaml"}
    ]
    named = {
        (path.name, variable)
        for path in (*files, ROOT / "README.md")
        for variable in re.findall(r"\b(?:EFO_)?[A-Z]+__\w*[A-Z]\b", path.read_text())  # proofs add the prefix
    }
    assert ("cases.py", "EFO_RELAY__MAX_RECORD_AGE_SECONDS") in named
    assert ("sinks.py", "RELAY__COMMIT_SECONDS") in named
    assert not is_variable("EFO_RELAY__MAX_RECORD_AGE")
    assert sorted((name, variable) for name, variable in named if not is_variable(variable)) == []


def is_variable(variable: str) -> bool:
    """Return whether an environment variable is that of a setting, or of the file of a secret one."""
    names = variable.removeprefix("EFO_").lower()
    names = re.sub(r"^streams__[a-z0-9_]+?__(?=[a-z]+__)", "", names)  # a setting of one of many streams
    section, *keys = names.split("__")
    kind = section_of(Settings.model_fields[section]) if section in Settings.model_fields else None
    for key in keys[:-1]:
        field = kind.model_fields.get(key) if kind is not None else None
        kind = None if field is None else section_of(field)
    return kind is not None and bool({keys[-1], keys[-1].removesuffix("_file")} & set(kind.model_fields))
