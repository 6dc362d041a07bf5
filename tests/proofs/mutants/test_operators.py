"""The operators: which mutants a module has, and which parts of it have none."""

from __future__ import annotations

import textwrap

import pytest

from proofs.mutants.operators import mutants_of, textual_mutant


def changes(source: str) -> set[tuple[str, str]]:
    """Return the kinds of the mutants of a source, each with the changed line."""
    return {(mutant.operator, mutant.after) for mutant in mutants_of("m.py", textwrap.dedent(source).encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {("boundary", "x = (a <= b)"), ("comparison", "x = (a >= b)")}),
        ("x = a in b", {("comparison", "x = (a not in b)")}),
        ("x = a is not None", {("comparison", "x = (a is None)")}),
        ("if a:\n    b = c", {("negation", "if (not a):")}),
        ("if not a:\n    b = c", {("negation", "if (a):")}),
        ("x = [a for a in b if a.c]", {("negation", "x = [a for a in b if (not a.c)]")}),
        ("x = a and b", {("and/or", "x = (a or b)")}),
        ("x = a - b", {("arithmetic", "x = (a + b)")}),
        ("x = 5", {("constant", "x = 6")}),
        ("x = 0.5", {("constant", "x = 1.5")}),
        ("x = True", {("constant", "x = False")}),
        ("f(a)", {("statement removed", "pass")}),
        ("a.b = c", {("statement removed", "pass")}),
        ("x = c", set()),  # what reads x would fail by its name
        ("x += a", {("statement removed", "pass"), ("arithmetic", "x -= a")}),
        ("raise ValueError(5)", {("raise removed", "pass")}),
        ("def f():\n    return a", {("return value", "return None")}),
        ("for a in b:\n    break", {("loop control", "continue")}),
        ("x = min(a, b)", {("call", "x = max(a, b)")}),
    ],
)
def test_each_operator_changes_one_thing(source, expected) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A text with 5 < 6."""',
        "def f(a: Literal[1]) -> Literal[2]: ...",
        "@cache(size=5)\nclass A: ...",
        "@overload\ndef f(a=5): ...",
        "assert a < 5",
        'x = f"{a + 1}"',
        "if TYPE_CHECKING:\n    import a",
        'x = "a" + b',
    ],
)
def test_texts_annotations_and_assertions_are_not_changed(source) -> None:
    assert changes(source) == set()


def test_a_mutant_changes_only_its_piece_and_knows_its_place() -> None:
    source = "# é\nclass A:\n    def f(self):\n        é = g(é) if self.é < 3 else 0\n        return é\n".encode()
    (mutant,) = [one for one in mutants_of("m.py", source) if one.operator == "boundary"]
    assert (mutant.line, mutant.function) == (4, "A.f")
    assert mutant.apply(source) == source.replace("self.é < 3".encode(), "(self.é <= 3)".encode())
    assert (mutant.before, mutant.after) == ("é = g(é) if self.é < 3 else 0", "é = g(é) if (self.é <= 3) else 0")


def test_mutants_with_the_same_lines_are_numbered() -> None:
    found = mutants_of("m.py", b"def f():\n    g()\n    g()\n\ndef h():\n    g()\n")
    assert [(one.function, one.line, one.occurrence) for one in found] == [("f", 2, 1), ("f", 3, 2), ("h", 6, 1)]


def test_a_change_over_several_lines_keeps_the_code_valid() -> None:
    source = b"x = (\n    a\n    and b\n)\nf(\n    1,\n)\n"
    for mutant in mutants_of("m.py", source):
        compile(mutant.apply(source), "m.py", "exec")


def test_a_planted_mutant_needs_a_text_that_occurs_once() -> None:
    source = b"a = b\nc = d\n"
    planted = textual_mutant("m.py", source, "c = d", "c = e")
    assert planted is not None
    assert (planted.line, planted.apply(source)) == (2, b"a = b\nc = e\n")
    assert textual_mutant("m.py", source, " = ", "") is None
    assert textual_mutant("m.py", source, "e", "") is None
