"""Lists the proofs, or runs one: `python -m proofs [NAME [ARGUMENT...]]`. Behind `make proofs` and `make NAME`."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence

from proofs.catalog import PROOFS, find

USAGE = "usage: python -m proofs [NAME [ARGUMENT...]] | --json\nexample: python -m proofs sim --seeds 20\n"


def main(arguments: Sequence[str]) -> int:
    """Print the table, or replace this process by the proof. Returns the exit status."""
    if not arguments:
        sys.stdout.write(table())
        return os.EX_OK
    name, *rest = arguments
    if name == "--json":
        rows = [{"group": group, **dataclasses.asdict(proof)} for group, proofs in PROOFS.items() for proof in proofs]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return os.EX_OK
    if (proof := find(name)) is None:
        wanted = name in ("--help", "-h")
        sys.stderr.write(USAGE + ("" if wanted else f"there is no proof {name!r}: without a name, all are listed\n"))
        return os.EX_OK if wanted else os.EX_USAGE
    # Not runpy: proofs start processes, which import the main module again by its name.
    return os.execv(sys.executable, [sys.executable, "-m", proof.module, *rest])  # noqa: S606 - a module of this project


def table() -> str:
    """Return the proofs by group: name, time if it is long, and sentence."""
    lines = []
    for group, proofs in PROOFS.items():
        lines += [f"\n{group}"]
        lines += [f"  make {proof.name:<18} {proof.takes:<6}  {proof.sentence} ({proof.example})" for proof in proofs]
    return "\n".join(lines).lstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
