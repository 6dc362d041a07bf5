"""Try efo in situations that users of Kinesis consumers report.

Each case runs in a process of its own, with an empty home. stdout has a table and, as the last line, one JSON object:
`wrong` cases, records that were lost without a word, and secrets that were found in any output. Exit status 1 if
anything is wrong.

example: make edges; make edges ARGS="clock --jobs 1" tries one kind
"""

from __future__ import annotations

import sys

from proofs.situations.runner import run_command

if __name__ == "__main__":
    sys.exit(run_command("proofs.edges", __doc__ or "", ["records_lost_silently", "secrets_found"]))
