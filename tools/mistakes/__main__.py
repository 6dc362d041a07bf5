"""Make every mistake, and compare what efo says with docs/mistakes.md; --write renews the page.

The last line is one JSON object: mistakes, subjects, without_a_message. Exit status 1 if one has no message of efo, or
if the page is old.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

from tools.mistakes.page import PAGE, text_of
from tools.mistakes.rows import read_mistakes
from tools.mistakes.running import Mistake, NothingSaidError, said_of


def make_all(only: str = "") -> tuple[Mapping[str, Sequence[tuple[Mistake, str]]], list[str]]:
    """Make the mistakes of the subjects with this text. Return what was said of them, and those without a message."""
    said: dict[str, list[tuple[Mistake, str]]] = {}
    silent: list[str] = []
    for subject, mistakes in read_mistakes().items():
        for mistake in mistakes if only in subject else ():
            try:
                said.setdefault(subject, []).append((mistake, said_of(mistake)))
            except NothingSaidError as error:
                silent.append(f"{subject}: {mistake.written!r}: {error}")
    return said, silent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.mistakes", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/mistakes.md")
    parser.add_argument("-k", dest="only", default="", help="only subjects with this text; the page is not compared")
    options = parser.parse_args(arguments)
    said, silent = make_all(options.only)
    text = text_of(said)
    for line in silent:
        print(line, file=sys.stderr)
    is_old = False
    if options.write and not silent and not options.only:
        PAGE.write_text(text)
    elif not options.only and (is_old := not PAGE.exists() or PAGE.read_text() != text):
        print("docs/mistakes.md is old: python -m tools.mistakes --write", file=sys.stderr)
    counts = {"mistakes": sum(map(len, said.values())), "subjects": len(said), "without_a_message": len(silent)}
    print(json.dumps(counts))
    return 1 if silent or is_old else 0


if __name__ == "__main__":
    sys.exit(main())
