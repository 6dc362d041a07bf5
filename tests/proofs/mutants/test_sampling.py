"""A seed selects the same mutants, whatever changes elsewhere in the code."""

from __future__ import annotations

from proofs.mutants.operators import mutants_of
from proofs.mutants.sampling import select

MODULE = b"""
LIMIT = 9

def limited(count):
    if count > LIMIT:
        count = LIMIT
    return count

def total(counts):
    result = 0
    for count in counts:
        result += count + 1
        result += count + 1
    return result
"""
ABOVE = b"""
def added(first, second):
    return first + 2 * second
"""
ALL = 1_000


def chosen(*sources: bytes, size: int = ALL, seed: int = 1) -> list[tuple[str, str, str, int]]:
    """Return the sample of modules, by what is changed and not by where it stands."""
    mutants = [mutant for number, source in enumerate(sources) for mutant in mutants_of(f"{number}.py", source)]
    return [(one.path, one.function, one.after, one.occurrence) for one in select(mutants, size, seed)]


def test_a_smaller_sample_is_the_beginning_of_a_larger_one() -> None:
    everything = chosen(MODULE)
    assert len(set(everything)) == len(everything) == len(mutants_of("0.py", MODULE))
    assert chosen(MODULE, size=5) == everything[:5]


def test_code_that_is_added_only_adds_its_own_mutants() -> None:
    grown = chosen(MODULE.replace(b"\ndef limited", ABOVE + b"\ndef limited"))
    old = [mutant for mutant in grown if mutant[1] != "added"]
    assert len(grown) > len(old)
    assert old == chosen(MODULE)


def test_another_module_only_adds_its_own_mutants() -> None:
    assert [mutant for mutant in chosen(MODULE, ABOVE) if mutant[0] == "0.py"] == chosen(MODULE)


def test_code_that_is_removed_or_changed_only_replaces_its_own_mutants() -> None:
    before, after = chosen(MODULE), chosen(MODULE.replace(b"LIMIT = 9", b"LIMIT = 8"))
    assert [mutant for mutant in after if mutant[1]] == [mutant for mutant in before if mutant[1]]


def test_another_seed_selects_others() -> None:
    samples = [tuple(chosen(MODULE, size=4, seed=seed)) for seed in range(20)]
    assert len(set(samples)) == 20
    assert {mutant for one in samples for mutant in one} == set(chosen(MODULE))


def test_a_sample_is_the_same_in_every_process_and_version() -> None:
    assert chosen(MODULE, size=3) == [
        ("0.py", "total", "pass", 2),
        ("0.py", "total", "result += count + 2", 1),
        ("0.py", "limited", "if (count >= LIMIT):", 1),
    ]
