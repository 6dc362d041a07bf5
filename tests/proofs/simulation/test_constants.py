"""Each constant of efo is changed by worlds or has a reason to stay, and a change reaches all of its uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from efo.consumer import deaggregator
from proofs.simulation.constants import FIXED, PERTURBED, choose, perturbed
from proofs.simulation.plan import plan
from proofs.simulation.run import run
from tests.paths import ROOT

FOLDERS = ("consumer", "health", "kinesis", "leases", "protocol")
ELSEWHERE = ("efo.kinesis.aws.", "efo.leases.stores.")
"""What no world runs: AWS, and the lease stores of servers and of SQLite."""
FIXED_NAMES = [name for names in FIXED.values() for name in names]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def sources() -> dict[str, ast.Module]:
    """Return the modules of efo, by name."""
    return {module_name(path): ast.parse(path.read_text()) for path in sorted((ROOT / "efo").rglob("*.py"))}


def constants() -> Iterator[str]:
    """Yield the numbers among the constants of the modules that worlds run."""
    for module, tree in sources().items():
        if module.split(".")[1] not in FOLDERS or module.startswith(ELSEWHERE):
            continue
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = getattr(import_module(module), node.target.id, None)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield f"{module}.{node.target.id}"


def users(qualified: str) -> set[str]:
    """Return the other modules that import a constant."""
    owner, _, name = qualified.rpartition(".")
    return {
        module
        for module, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == owner and any(a.name == name for a in node.names)
    }


def uses(tree: ast.AST, name: str) -> tuple[int, int]:
    """Return how often a name is used when a function is called, and how often when its module is imported."""
    called = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
        for node in ast.walk(statement)
    }
    loads = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    return sum(node in called for node in loads), sum(node not in called for node in loads)


def test_each_constant_is_changed_or_has_a_reason_to_stay() -> None:
    assert sorted([*PERTURBED, *FIXED_NAMES]) == sorted(constants())


@pytest.mark.parametrize("qualified", PERTURBED)
def test_a_change_reaches_each_use(qualified: str) -> None:
    owner, _, name = qualified.rpartition(".")
    assert set(PERTURBED[qualified].users) == users(qualified)
    for module in (owner, *PERTURBED[qualified].users):
        at_call, at_import = uses(sources()[module], name)
        assert at_call
        assert not at_import


@pytest.mark.parametrize("qualified", PERTURBED)
def test_a_constant_is_changed_in_all_its_modules_and_restored(qualified: str) -> None:
    constant, (owner, _, name) = PERTURBED[qualified], qualified.rpartition(".")
    modules = [import_module(module) for module in (owner, *constant.users)]
    own = getattr(modules[0], name)
    assert own not in constant.choices
    for value in constant.choices:
        assert type(value) is type(own)
        with perturbed(((qualified, value),)):
            assert [getattr(module, name) for module in modules] == [value] * len(modules)
        assert [getattr(module, name) for module in modules] == [own] * len(modules)


def test_a_constant_is_restored_after_a_failure() -> None:
    module = import_module("efo.consumer.shard_task")
    own = module.STORE_RETRY_INTERVAL
    with suppress(RuntimeError), perturbed((("efo.consumer.shard_task.STORE_RETRY_INTERVAL", 2.0),)):
        raise RuntimeError
    assert own == module.STORE_RETRY_INTERVAL


def test_the_choice_depends_on_the_random_numbers_alone() -> None:
    chosen = [choose(Random(seed)) for seed in range(100)]
    assert chosen == [choose(Random(seed)) for seed in range(100)]
    assert {name for values in chosen for name, _ in values} == PERTURBED.keys()
    assert () in chosen


def test_a_world_runs_with_its_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "efo.kinesis.connection._READ_SIZE"
    seed = next(seed for seed in range(200) if name in dict(plan(seed).constants))
    seen: list[int] = []

    async def look(_world: object) -> None:
        seen.append(import_module("efo.kinesis.connection")._READ_SIZE)

    monkeypatch.setattr("proofs.simulation.world.World.run", look)
    run(seed)
    assert seen == [dict(plan(seed).constants)[name]]


def test_worlds_find_a_defect_that_only_another_value_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect: each part of an event with aggregates counts as its last one. No world has 10,000 user records."""
    name = "efo.consumer.deaggregator.MAX_RECORDS"
    part = deaggregator.EventPart
    monkeypatch.setattr(deaggregator, "EventPart", lambda records, is_last: part(records, is_last=True))  # noqa: ARG005
    seeds = (8, *range(200))  # that world shows it today, and is a small one
    seed = next(s for s in seeds if name in dict(plan(s).constants) and run(s).problems)
    monkeypatch.setattr("proofs.simulation.run.plan", lambda seed: replace(plan(seed), constants=()))
    assert run(seed).problems == ()


def test_the_page_names_what_is_changed_and_what_a_rule_fixes() -> None:
    page = (ROOT / "docs" / "proofs.md").read_text()
    by_rule = [name for reason, names in FIXED.items() if reason.startswith("R") for name in names]
    assert [name for name in (*PERTURBED, *by_rule) if f"`{name.rpartition('.')[2]}`" not in page] == []
    assert [reason for reason in FIXED if reason not in page] == []
