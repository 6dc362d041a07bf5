"""The dashboards of Grafana: config/grafana/dashboards/*.json are written from tools/grafana/.

`python tools/grafana_dashboards.py --write` writes the files; a test fails while they are outdated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # a script's own folder is on the path, but not that of `tools`

from tools.grafana.building import as_json  # noqa: E402 - after the path is set
from tools.grafana.leases import LEASES  # noqa: E402
from tools.grafana.overview import OVERVIEW  # noqa: E402
from tools.grafana.process import PROCESS  # noqa: E402
from tools.grafana.shards import SHARDS  # noqa: E402
from tools.grafana.sinks import SINKS  # noqa: E402

DIRECTORY: Final = ROOT / "config" / "grafana" / "dashboards"
DASHBOARDS: Final = (OVERVIEW, SHARDS, LEASES, SINKS, PROCESS)


def render() -> dict[Path, str]:
    """Return the files of all dashboards, with their contents."""
    return {DIRECTORY / f"{dashboard.uid}.json": as_json(dashboard) for dashboard in DASHBOARDS}


def main() -> int:
    """Write the dashboards to their files, or their names to stdout."""
    parser = argparse.ArgumentParser(description="Dashboards of Grafana for efo.")
    parser.add_argument("--write", action="store_true", help=f"write {DIRECTORY.relative_to(ROOT)}/*.json")
    write = parser.parse_args().write
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for path, text in render().items():
        if write:
            path.write_text(text)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
