"""`make spark-parity`: the options of Spark's Kafka source, on a real broker and on efo's log. Prints a JSON line last.

Exit status 1: something differs. 69: Java, the broker or Spark's connector is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from efo_service.spark.session import spark_session
from proofs.e2e.kafka.broker import CONNECTOR, missing, running_broker
from proofs.e2e.kafka.topic import create_topic
from proofs.spark_parity.cases import CASES, RECORDS, TOPIC
from proofs.spark_parity.records import copy, rows_of, write_log
from proofs.spark_parity.run import Sources, row_of

_UNAVAILABLE = 69


def main() -> int:
    """Run all cases, or those of some options."""
    parser = argparse.ArgumentParser(
        prog="make spark-parity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='example:\n  make spark-parity ARGS="--only startingTimestamp endingTimestamp"',
    )
    parser.add_argument("--only", nargs="+", metavar="OPTION", help="the cases of these options")
    parser.add_argument("--json", action="store_true", help="print the JSON alone, without the table")
    arguments = parser.parse_args()
    if lack := missing(connector=True):
        print(f"spark-parity: {lack}", file=sys.stderr)
        return _UNAVAILABLE
    cases = tuple(case for case in CASES if not arguments.only or case.option in arguments.only)
    began, rows = time.monotonic(), []
    with TemporaryDirectory() as directory, running_broker(Path(directory) / "kafka") as broker:
        root = Path(directory) / "log"
        write_log(root)
        create_topic(broker.address, TOPIC, len(RECORDS))
        for partition in range(len(RECORDS)):
            copy(rows_of(root, partition), broker.address)
        with spark_session("spark parity", quick=True, jars=[*CONNECTOR.glob("*.jar")]) as spark:
            for result in Sources(spark, root, broker.address).compare(cases):
                rows.append(row_of(result))
                mark = "differs" if result.differs else "alike"
                if not arguments.json:
                    print(f"{result.case.option:36} {result.case.name:52} {mark} {result.differs}", flush=True)
    failed = [row for row in rows if row["differs"]]
    seconds = round(time.monotonic() - began)
    print(json.dumps({"rows": len(rows), "alike": len(rows) - len(failed), "differs": failed, "seconds": seconds}))
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
