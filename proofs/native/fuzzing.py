"""The fuzz target `native`: either step reads an input, and their answers are the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from efo.protocol.native import STEP
from proofs.fuzz.target import Target
from proofs.native.cases import WORDS, cases
from proofs.native.compare import compare


def check(data: bytes) -> None:
    """Compare both steps."""
    if STEP is not None:
        compare(data, STEP)


def seeds() -> Iterator[bytes]:
    """Yield made inputs, and damaged ones."""
    return islice(cases(0), 150)


TARGETS: Final = () if STEP is None else (
    Target("native", "the native step beside the Python step (make native)", check, seeds, dictionary=WORDS),
)  # fmt: skip
