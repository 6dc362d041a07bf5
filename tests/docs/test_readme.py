"""README.md: what it says about the package and the repository is true."""

from __future__ import annotations

import re
import tomllib

import efo
from tests import makefile
from tests.arguments import arguments_of
from tests.paths import ROOT

PAGE = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_table_of_extras_has_each_extra_for_users():
    named = re.findall(r"^\| `([\w-]+)` \|", PAGE.partition("## Install")[2].partition("\n## ")[0], re.MULTILINE)
    assert sorted(named) == sorted(set(PROJECT["optional-dependencies"]) - {"dev"})


def test_the_linked_files_and_the_named_paths_exist():
    named = re.findall(r"\]\(([\w/.-]+)\)", PAGE) + re.findall(r"`((?:efo|tests|config|docs)/[\w/.]+)`", PAGE)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_named_make_targets_exist():
    targets = set(re.findall(r"`make ([\w-]+)", PAGE))
    assert len(targets) > 10
    assert [target for target in targets if target not in makefile.TARGETS] == []


def test_the_named_options_of_consume_exist():
    parameters = arguments_of(efo.consume)
    table = PAGE.partition("| you want to |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)=", table)) <= parameters
    names = re.findall(r"\befo\.([A-Z]\w+|[a-z]+(?=\())", PAGE)
    assert len(names) > 5
    assert [name for name in names if not hasattr(efo, name)] == []
