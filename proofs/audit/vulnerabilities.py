"""Known vulnerabilities, as pip-audit reports them. A check that was not made is never reported as made."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

SERVICES: Final = ("pypi", "osv")
# A version with vulnerabilities that have been public since 2014. A service that does not report them knows nothing,
# as a mirror without the API does: pip-audit then skips each package and ends with "No known vulnerabilities found".
CONTROL: Final = "jinja2==2.4.1"


def check(
    pins: Sequence[Sequence[str]], query: Callable[[str, Sequence[str]], dict[str, Any] | None]
) -> dict[str, Any]:
    """Ask the first service that knows `CONTROL` about lists of `name==version`.

    Return `status`: `checked`, `not checked` or `partly checked`, with `service`, the number `checked`, the names
    `not_checked`, and `found`: the ids of the vulnerabilities by package.
    """
    wanted = [pin for some in pins for pin in some]
    service = next((service for service in SERVICES if parse(query(service, [CONTROL])).get(CONTROL)), None)
    known: dict[str, list[str]] = {}
    for some in pins if service else ():
        known |= parse(query(service or "", some))
    missing = [pin for pin in wanted if pin not in known]
    status = "not checked" if not known else "partly checked" if missing else "checked"
    return {
        "status": status if wanted else "checked",
        "service": service,
        "checked": len(wanted) - len(missing),
        "not_checked": missing if known else len(missing),
        "found": {pin: known[pin] for pin in wanted if known.get(pin)},
    }


def parse(report: dict[str, Any] | None) -> dict[str, list[str]]:
    """Return the ids of vulnerabilities by `name==version` of pip-audit's JSON, without packages that it skipped."""
    if report is None:
        return {}
    return {
        f"{package['name']}=={package['version']}": [vulnerability["id"] for vulnerability in package["vulns"]]
        for package in report["dependencies"]
        if "skip_reason" not in package
    }


def ask_pip_audit(program: Path) -> Callable[[str, Sequence[str]], dict[str, Any] | None]:
    """Return a query that runs pip-audit. Its result is None if the service could not be reached."""

    def query(service: str, pins: Sequence[str]) -> dict[str, Any] | None:
        options = ("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "30")
        result = subprocess.run(  # noqa: S603
            [program, "--vulnerability-service", service, "--requirement", "/dev/stdin", *options],
            input="\n".join(pins),
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            report: dict[str, Any] = json.loads(result.stdout)
        except ValueError:
            reason = (result.stderr.strip().splitlines() or ["no output"])[-1]
            print(f"audit: {service} did not answer: {reason[:200]}", file=sys.stderr)  # noqa: T201
            return None
        return report

    return query
