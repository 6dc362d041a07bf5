"""Which situations the consumer is tested in, by which tests, and with what result.

`python tools/scenarios.py` runs these tests and prints a table and, last, one line of JSON; `--write` renews
docs/scenarios.md instead, which a test holds to be of today. A test says which situations it shows by a marker,
`@pytest.mark.scenario("G45")`, on itself, its class, or some of its parameters.

Exit status: 0 if all tests passed, 1 if one failed, 2 for wrong arguments. Situations without a test are `missing`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "scenarios.md"
START: Final = "<!-- The tables are made by tools/scenarios.py. -->\n"
END: Final = "<!-- End of the tables. -->\n"

AREAS: Final[Mapping[str, Mapping[str, str]]] = {
    "Which leases are missing": {
        "G1": "LATEST, two merges of which one parent each has a lease: the merged shard is created",
        "G2": "LATEST, one family complete, another with a hole: the hole's open shard is created",
        "G3": "LATEST, leases on a merged shard and on a parent whose sibling has none: what is left is created",
        "G4": "LATEST, leases on open shards only: the open shard that is missing is created",
        "G5": "LATEST, leases on one family only: the open shards of the others are created",
        "G6": "The whole range is covered by leases, some on closed shards: nothing is created",
        "G7": "Every shard has a lease: nothing is created",
        "G8": "Leases of several generations cover the range together: nothing is created",
        "G9": "LATEST, no leases: all open shards begin at LATEST",
        "G10": "TRIM_HORIZON or AT_TIMESTAMP, no leases: the oldest shards begin there",
        "G11": "The same, with leases on one branch: the oldest shards of the others are created",
        "G12": "The same, with leases on a merged shard: only the oldest without any are created",
        "G13": "The same, with leases in the middle of two families: the oldest of the others are created",
        "G14": "The same, with leases on open shards: the ancestors of what is missing are created",
        "G15": "Merges and splits in turn: holes are found, what was passed is not created again",
        "G16": "No shards at all; and an open child beside its open parent, as a torn listing shows it",
        "G17": "Listings that are old or incomplete: no shard is lost by them",
        "G18": "Creating leases is broken off at any point: another run leads to the same leases",
    },
    "Leases": {
        "G19": "A lease is created once, whoever tries again",
        "G20": "A write with a stale counter: the lease is lost",
        "G21": "A renewal whose answer was lost: the row shows that it is ours",
        "G22": "A renewal finds that a hand-off was asked for: it goes on, and knows",
        "G23": "A lease is given up by who has it, by who has it no longer, and when nobody has it",
        "G24": "One's own expired lease may be taken; one that is renewed, or just seen, may not",
        "G25": "Free leases are taken up to the fair share, and long neglected ones beyond it",
        "G26": "Nothing is stolen while something is free, or nobody has too much; else one, from the busiest",
        "G27": "A lease that was lost and got again is not written by who held it before",
        "G28": "A deleted lease is not resurrected by a late write",
        "G29": "A lease that is seen for the first time does not count as expired",
        "G30": "A write that the store refuses for now leaves what we know as it was",
    },
    "Hand-off": {
        "G31": "A lease is asked for: its owner finishes, checkpoints, and hands it over",
        "G32": "An owner that does not let go in time loses the lease",
        "G33": "A worker that starts again amid a hand-off: the lease is not stuck",
        "G34": "A hand-off of a lease that nobody reads takes place at once",
        "G35": "The lease of a finished shard is never handed over",
    },
    "The end of a shard": {
        "G36": "A reader that does not ack the end: it is told, and the children do not start",
        "G37": "A split: child leases, the children's ids, then the end, in this order",
        "G38": "A merge: the child is created once, and waits for both parents",
        "G39": "A lease is lost: nothing is checkpointed any more",
        "G40": "A shard that exists no longer: its end, without children, and those are found by listing",
        "G41": "Finished leases are cleaned up once nobody needs them, and no earlier",
        "G42": "A parent that nobody read: its child starts",
        "G43": "A child does not start before its parents are done",
        "G44": "Of two parents one is gone: the child starts after the other",
    },
    "Enhanced fan-out": {
        "G45": "A subscription's time is over: on after the last continuation, no loss, no repetition",
        "G46": "An error after some events: on after those that were delivered",
        "G47": "An error behind events that were not yet taken: these come first",
        "G48": "An event with both a continuation and children, or neither, or children without parents: refused",
        "G49": "What a subscription says that was given up is ignored",
        "G50": "A call without an answer is given up and made again",
        "G51": "Two errors of one subscription: one new attempt",
        "G52": "ResourceInUse: on the call, in the stream, and after another worker has taken over",
        "G53": "A shard whose end was read but not saved, and one that is finished",
        "G54": "First AT the checkpoint, cutting what is done; and there again while no event has come",
        "G55": "LATEST, and the first call fails: nothing is skipped",
        "G56": "No more is fetched than is asked for",
        "G57": "Empty events keep a subscription alive, silence ends it, a busy reader does not",
        "G58": "Empty events move the position",
        "G59": "A subscription is closed twice, or before it was used",
        "G60": "Resets, GOAWAY, a cut, damage, frames in pieces and several at once",
        "G61": "A reader that pauses: the service stops at the window, and memory is bounded",
        "G62": "The fan-out consumer is being created, stuck, being deleted, deleted under us",
        "G63": "KMS: throttling passes, what is disabled is told, and its shard parked",
    },
    "Checkpoints": {
        "G64": "The end of a shard is saved once, and only when its last record is done",
        "G65": "Progress is kept when a write fails, and the same checkpoint is not written twice",
        "G66": "Checkpoints behind, ahead of what was delivered, or that are none",
    },
    "Aggregates": {
        "G67": "All user records belong to the shard: all are given",
        "G68": "Some belong to another shard: filtered, dropped or kept, as the mode says",
        "G69": "A record without a time of arrival is read as any other; its age is not known",
        "G70": "On in the middle of an aggregate; what looks like one and is none is passed on",
    },
    "All together": {
        "G71": "Holes in the range of the leases are found and filled, and only when they stay",
        "G72": "Splits and merges under load: order by key, and no loss",
        "G73": "Workers are restarted one after the other: no loss, no repetition",
        "G74": "A worker that was paused for long writes nothing over newer progress",
        "G75": "Beside KCL on one lease table",
    },
}
SCENARIOS: Final[Mapping[str, str]] = {key: words for area in AREAS.values() for key, words in area.items()}
BY_COMMAND: Final[Mapping[str, str]] = {"G75": "make kcl-interop"}
"""What is shown by a command of its own, since it takes long and needs what the tests do not."""
OUTCOMES: Final = ("failed", "passed", "skipped", "by command", "missing")
_ID: Final = re.compile(r"G[1-9][0-9]?")


# --- which tests -------------------------------------------------------------------------------------------


def marked_tests(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the tests by situation, as pytest's node ids without parameters, as they stand in the sources.

    Raises ValueError: a marker names a situation that there is not.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        source = path.read_text()
        if "mark.scenario" in source:
            for name, ids in _marked(ast.parse(source).body):
                node = f"{path.relative_to(root).as_posix()}::{name}"
                if unknown := ids - SCENARIOS.keys():
                    raise ValueError(f"{node} shows {', '.join(sorted(unknown))}: tools/scenarios.py knows no such one")
                for key in ids:
                    found[key].append(node)
    return dict(found)


def _marked(
    body: Sequence[ast.stmt], prefix: str = "", outer: frozenset[str] = frozenset()
) -> Iterator[tuple[str, set[str]]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _marked(statement.body, f"{prefix}{statement.name}::", outer | _ids(statement.decorator_list))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test"):
            ids = outer | _ids(statement.decorator_list)
            if ids:
                yield prefix + statement.name, set(ids)


def _ids(decorators: Sequence[ast.expr]) -> set[str]:
    """Return what the decorators with a marker in them name: its arguments, or the parameters beside it."""
    ids: set[str] = set()
    for decorator in decorators:
        if any(isinstance(node, ast.Attribute) and node.attr == "scenario" for node in ast.walk(decorator)):
            texts = (node.value for node in ast.walk(decorator) if isinstance(node, ast.Constant))
            ids.update(text for text in texts if isinstance(text, str) and _ID.fullmatch(text))
    return ids


# --- the page ----------------------------------------------------------------------------------------------


def tables(tests: Mapping[str, Sequence[str]]) -> str:
    """Return the page's tables."""
    lines: list[str] = []
    for area, scenarios in AREAS.items():
        lines += [f"## {area}", "", "| | situation | tests |", "|---|---|---|"]
        for key, words in scenarios.items():
            nodes = [node.removeprefix("tests/") for node in tests.get(key, ())]
            shown = "<br>".join(f"`{name}`" for name in [*nodes, *filter(None, [BY_COMMAND.get(key)])])
            lines.append(f"| {key} | {words} | {shown or 'none yet'} |")
        lines.append("")
    return "\n".join(lines)


def renewed(page: str) -> str:
    """Return the page with the tables as they are today. Raises ValueError: the page has no place for them."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"{PAGE.name} has no place for the tables between {START.strip()} and {END.strip()}")
    return f"{before}{START}\n{tables(marked_tests())}\n{END}{after}"


# --- their results -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Results:
    """A plugin of pytest: keeps what became of each marked test, by situation."""

    by_scenario: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _of: dict[str, list[str]] = field(default_factory=dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note which situations each test shows."""
        for item in items:
            self._of[item.nodeid] = [key for mark in item.iter_markers("scenario") for key in mark.args]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how it went: a test counts by its call, and by its set-up if that fails or skips it."""
        if report.when == "call" or report.outcome != "passed":
            for key in self._of.get(report.nodeid, ()):
                self.by_scenario[key].add(report.outcome)

    def of(self, key: str) -> str:
        """Return the result of one situation: the worst of its tests; skipped ones count beside others as nothing."""
        outcomes = self.by_scenario.get(key, set())
        if not outcomes:
            return "by command" if key in BY_COMMAND else "missing"
        return next(outcome for outcome in OUTCOMES if outcome in outcomes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="make scenarios",
        description=__doc__.partition("\n\n")[0] if __doc__ else None,
        epilog='example: make scenarios ARGS="G45 G60"',
    )
    parser.add_argument("scenario", nargs="*", help="which; default: all")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT)}, and run nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenario) - SCENARIOS.keys():
        print(f"there is no {', '.join(sorted(unknown))}: there are G1 to G{len(SCENARIOS)}", file=sys.stderr)
        return 2
    if options.write:
        PAGE.write_text(renewed(PAGE.read_text()))
        return 0
    tests = {key: nodes for key, nodes in marked_tests().items() if not options.scenario or key in options.scenario}
    results = _run({node for nodes in tests.values() for node in nodes})
    return _report(tests, results, options.scenario or list(SCENARIOS))


def _run(nodes: set[str]) -> Results:
    """Run them. Raises RuntimeError: pytest itself could not."""
    results = Results()
    if nodes:
        status = pytest.main([*sorted(nodes), "-q", "-m", "scenario", "--rootdir", str(ROOT)], plugins=[results])
        if status not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            raise RuntimeError(f"pytest could not run the tests: {status!r}")
    return results


def _report(tests: Mapping[str, Sequence[str]], results: Results, keys: Sequence[str]) -> int:
    outcomes = {key: results.of(key) for key in keys}
    for key, outcome in outcomes.items():
        print(f"{key:4} {outcome:10} {SCENARIOS[key]}")
        for node in [*tests.get(key, ()), *filter(None, [BY_COMMAND.get(key)])]:
            print(f"{'':16}{node}")
    of = {kind: [key for key in keys if outcomes[key] == kind] for kind in OUTCOMES}
    said: dict[str, object] = {"scenarios": len(keys), "passed": len(of["passed"]), "failed": len(of["failed"])}
    lists = {
        "failures": of["failed"],
        "skipped": of["skipped"],
        "by_command": of["by command"],
        "missing": of["missing"],
    }
    print(json.dumps(said | lists))
    return 1 if of["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
