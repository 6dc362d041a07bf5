"""`python -m proofs.e2e.tables`, or `make tables-e2e`. The last line of stdout is JSON, of all formats.

Exits with 1 on failure, and with 69 if something is not installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from efo.errors import EfoError
from efo_service.exit_codes import Exit
from proofs.e2e.command import progress, run_directory
from proofs.e2e.kafka.broker import missing as missing_broker
from proofs.e2e.tables.formats import SPARK, missing
from proofs.e2e.tables.run import PARTS, Options, run
from proofs.local_servers.running import NotInstalledError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both formats, or the one that is named; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs.e2e.tables",
        description="Runs FakeKinesis, two `efo run`, and `efo pipeline` into a table of Delta (from the log, on Spark"
        " 4.2) and of Iceberg (from a Kafka broker, on Spark 4.1) on versitygw, an S3 server. Kills the pipeline and"
        " the relays at random (SIGKILL). Then reads the table with its own Spark and compares it with the records"
        " sent. Then changes the schema of JSON and Avro values.",
        epilog="example: make tables-e2e ARGS='--only delta --kills 8 --seed 7'",
    )
    parser.add_argument("--only", choices=SPARK, help="one format (both)")
    parser.add_argument("--part", choices=PARTS, help="one part (both)")
    parser.add_argument("--kills", type=int, default=6, help="kills for each format; two thirds hit the pipeline (6)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills (1)")
    parser.add_argument("--records", type=int, default=40_000, help="number of records for each format (40000)")
    parser.add_argument("--rate", type=float, default=2_000, help="most records per second (2000)")
    parser.add_argument("--keep", type=Path, help="keep the logs in this new directory")
    parsed = parser.parse_args(arguments)
    names = [parsed.only] if parsed.only else list(SPARK)
    lacks = [missing(name) for name in names] + ([missing_broker()] if "iceberg" in names else [])
    if lack := next(filter(None, lacks), None):
        print(lack, file=sys.stderr)
        return Exit.UNAVAILABLE
    relay = max(1, parsed.kills // 3)
    options = Options(
        records=parsed.records,
        rate=parsed.rate,
        kills={"relay": relay, "spark": max(1, parsed.kills - relay)},
        seed=parsed.seed,
        parts=(parsed.part,) if parsed.part else PARTS,
    )
    report = progress()
    summaries, is_passed = {}, True
    for name in names:
        report(f"--- {name}, on Spark {SPARK[name]}")
        with run_directory(parsed.keep and parsed.keep / name) as directory:
            try:
                passed, summaries[name] = run(name, options, directory, report)
            except NotInstalledError as error:
                print(error, file=sys.stderr)
                return Exit.UNAVAILABLE
            except EfoError as error:
                print(f"{name}: {error}", file=sys.stderr)
                return 1
        report(f"{name}: {json.dumps(summaries[name])}")
        is_passed = is_passed and passed
    print(json.dumps(summaries))
    return 0 if is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
