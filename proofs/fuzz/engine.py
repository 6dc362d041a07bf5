"""Runs one target under atheris: `python -m proofs.fuzz.engine TARGET [OPTION ...]`. `__main__` starts it.

atheris instruments the imports of efo and of the HTTP/2 libraries, so that their branches guide the fuzzer.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["efo", "efo_service", "h2", "h11", "hpack", "hyperframe"]):
    from proofs.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz until an option of libFuzzer ends the process. Does not return."""
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    atheris.Setup([sys.argv[0], f"-max_len={target.max_length}", *options], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
