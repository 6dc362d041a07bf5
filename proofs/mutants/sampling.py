"""Which mutants a seed selects. Pure.

Each mutant has a rank, a hash of the seed and of what it changes. So a change of other code selects no other mutants: a
new one only comes among those of lower rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from proofs.mutants.operators import Mutant


def select(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """Return the `size` mutants with the lowest ranks, the lowest first; all, if there are fewer.

    `mutants`: those of a module in the order of its text, which tells equal changes of a function apart.
    """
    equals: Counter[tuple[str, ...]] = Counter()
    ranked: list[tuple[bytes, int]] = []
    for index, mutant in enumerate(mutants):
        change = (mutant.path, mutant.function, mutant.before, mutant.operator)
        ranked.append((_rank(seed, *change, equals[change]), index))
        equals[change] += 1
    return [mutants[index] for _, index in sorted(ranked)[:size]]


def _rank(*identity: object) -> bytes:
    """Return the rank of an identity: the same in each process, on each machine and for each version of Python."""
    return sha256(repr(identity).encode()).digest()
