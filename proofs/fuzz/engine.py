"""One target under atheris: `python -m proofs.fuzz.engine TARGET [OPTION ...]`. `__main__` starts it.

efo and the HTTP/2 libraries are imported while atheris watches, so that their branches lead it.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["efo", "h2", "hpack", "hyperframe"]):
    from proofs.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz until libFuzzer's own options say that it is enough; does not return."""
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    atheris.Setup([sys.argv[0], f"-max_len={target.longest}", *options], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
