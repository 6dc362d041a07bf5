import os
import signal
import sys
import time
from pathlib import Path

from proofs.situations.situation import CANARY, Cases, Outcome

cases = Cases("sample")


@cases.case("nothing is lost")
def right_one() -> Outcome:
    return Outcome("read all", is_right=True, counts={"ms_worst": 3})


@cases.case("nothing is lost")
async def wrong_one() -> Outcome:
    return Outcome("lost two", is_right=False, counts={"records_lost_silently": 2, "ms_worst": 7})


@cases.case("no secret is printed")
def tells_a_secret() -> Outcome:
    sys.stderr.write(f"token {CANARY}\n")
    return Outcome("printed", is_right=True)


@cases.case("it ends", seconds=1)
def hangs() -> Outcome:
    time.sleep(60)
    raise AssertionError


@cases.case("it lives")
def crashes() -> Outcome:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


@cases.case("its home is empty")
def home() -> Outcome:
    return Outcome("looked", is_right=not [*Path.home().iterdir()] and "AWS_PROFILE" not in os.environ)
