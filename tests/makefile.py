"""What the Makefile has: its daily targets, the proofs, and what these download."""

from __future__ import annotations

import re
from typing import Final

from proofs.catalog import PROOFS
from tests.paths import ROOT

TEXT: Final = (ROOT / "Makefile").read_text() + (ROOT / "proofs/proofs.mk").read_text()
PROOF_NAMES: Final = frozenset(proof.name for proofs in PROOFS.values() for proof in proofs)
TARGETS: Final = PROOF_NAMES | {
    name for names in re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", TEXT, re.MULTILINE) for name in names.split()
}
