"""Attack efo: its open port, its decoders, the answers that it reads, the processes beside it.

Each case runs in a process of its own, with an empty home, against real processes of efo. stdout has a table and, as
the last line, one JSON object: processes that crashed, the longest time for which a loop stood still, callers that
hung, leases that were lost, secrets that were found in any output. Exit status 1 if anything is wrong.

example: make attacks; make attacks ARGS="port --jobs 1" tries one kind
"""

from __future__ import annotations

import sys

from proofs.situations.runner import run_command

if __name__ == "__main__":
    names = ["crashed", "blocked_ms_worst", "hung", "leases_lost", "secrets_found"]
    sys.exit(run_command("proofs.attacks", __doc__ or "", names))
