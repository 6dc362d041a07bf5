"""Run clients of KCL's multi-language protocol on `efo kcl`, and the Java daemon with the same properties.

Each story prints one JSON line: what was put, lost, out of order and repeated. `repeated_by_the_java_daemon`: the same
story with the Java daemon alone. `cpu_us_per_record` and `memory_mb` are those of the daemon without its children.

Exit status: 0 if nothing is lost or out of order, 1 otherwise, 69 if a tool is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from proofs.interop.clients.runner import InteropError
from proofs.interop.multilang.clients import Client, clients
from proofs.interop.multilang.scenario import run
from proofs.local_servers.running import NotInstalledError

UNAVAILABLE: Final = 69
STORIES: Final = {
    "lives": (("lives", "efo"),),
    "java": (("lives", "kcl"),),
    "rolling": (("rolling", "kcl", "efo", "kcl"),),
    "kcl-rs": (("rolling", "kcl_rs", "efo", "kcl_rs"),),
    "cost": (("cost", "efo"), ("cost", "kcl")),
    "idle": (("idle", "efo"), ("idle", "kcl")),
}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make kcl-multilang", description=__doc__)
    parser.add_argument("stories", nargs="*", help=f"{', '.join(STORIES)}; default: all")
    parser.add_argument("--client", action="append", help="only this client")
    options = parser.parse_args()
    chosen = [client for client in clients() if not options.client or client.name in options.client]
    if missing := [text for client in chosen if (text := client.missing())]:
        print("\n".join(missing), file=sys.stderr)
        return UNAVAILABLE
    stories = options.stories or list(STORIES)
    results: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryDirectory() as directory:
            for client in chosen:
                for name in stories:
                    if name == "lives" or client.name == "amazon_kclpy":
                        results += [_run(client, Path(directory), *story) for story in STORIES[name]]
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    except InteropError as error:
        print(error, file=sys.stderr)
        return 1
    by_java = next(
        (one["duplicates"] for one in results if one["story"] == "lives" and one["workers"] == ["kcl"]), None
    )
    for one in results:
        if one["story"] in {"cost", "idle"}:
            print(json.dumps(one))
            continue
        line = {
            "client": one["client"],
            "story": " > ".join(one["workers"]),
            "records": one["records"],
            "lost": one["lost"],
            "order_violations": one["order_violations"],
            "reread": one["reread"],
            "repeated": one["duplicates"],
        }
        if one["workers"] == ["efo"]:
            line["repeated_by_the_java_daemon"] = by_java
        print(json.dumps(line))
    return int(any(one.get("lost") or one.get("order_violations") for one in results))


def _run(client: Client, directory: Path, how: str, *kinds: str) -> dict[str, Any]:
    place = directory / f"{client.name}-{how}-{'-'.join(kinds)}"
    progress = partial(_print_progress, time.monotonic(), f"{client.name}, {' > '.join(kinds)}")
    found = trio.run(run, client, place, progress, how, *kinds)
    print(json.dumps(found), file=sys.stderr)
    return found


def _print_progress(since: float, story: str, message: str) -> None:
    print(f"[{story} {time.monotonic() - since:4.0f} s] {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
