"""Cases for the tests of the runner.

example: none
"""

import sys

from proofs.situations.runner import run_command

sys.exit(
    run_command(
        "tests.proofs.situations.sample",
        __doc__,
        ["records_lost_silently", "ms_worst", "hung", "crashed", "secrets_found"],
    )
)
