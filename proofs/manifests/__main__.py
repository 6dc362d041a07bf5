"""`make manifests`: builds, checks and lints each variant of config/kubernetes, and lints the policies of config/iam.

An API server of Kubernetes, which is built from Go's modules the first time, takes each resource by a server-side dry
run. Without Go, etcd or kubectl it is left out, and the result says so. Prints, last, one JSON object. Exit status: 1
if something is wrong, 69 if no server was asked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from efo_service.exit_codes import Exit
from proofs.local_servers.running import NotInstalledError
from proofs.manifests.cluster import serve_cluster
from proofs.manifests.schemas import CustomSchemas, custom_schemas, errors
from proofs.manifests.variant import KUBERNETES, VARIANTS, problems, resources
from proofs.paths import ROOT, TOOLS

OWN: Final = TOOLS / "manifests"
IGNORED: Final = {
    "container-image-pull-policy": "the tag of a release does not move, and a digest cannot",
    "deployment-has-host-podantiaffinity": "pods are spread over hosts by a constraint that it does not know",
    "deployment-replicas": "the log has one writer",
    "deployment-strategy": "the log has one writer",
}
"""The checks of kube-score that do not fit, and why. Nor does a limit of the CPU: throttling delays renewals."""
NEWER: Final = ("kinesis:DescribeAccountSettings", "kinesis:TagResource")
"""Actions that AWS has and parliament's last release does not know."""


def lint(text: str) -> list[str]:
    """Return what kube-score finds in resources."""
    command = [str(OWN / "bin/kube-score"), "score", "-", "-o", "json", "--ignore-container-cpu-limit"]
    command += [f"--ignore-test={name}" for name in IGNORED]
    ended = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return [
        f"{scored['object_name']}: {one['check']['id']}: {comment['summary']}"
        for scored in json.loads(ended.stdout)
        for one in scored["checks"]
        if not one["skipped"] and one["grade"] < 10  # noqa: PLR2004 - 10 is "OK"
        for comment in one["comments"] or ()
    ]


def check_policies() -> tuple[int, list[str]]:
    """Return the number of IAM policies, and what parliament finds in them."""
    files = sorted((ROOT / "config/iam").glob("*.json"))
    found = []
    for file in files:
        # From stdin: without a terminal, parliament refuses the name of a file. It warns of its own imports.
        # By its interpreter, as the script names the one of the checkout that installed it.
        command = [str(TOOLS / "delivery/bin" / name) for name in ("python", "parliament")] + ["--json"]
        environment = {"PYTHONWARNINGS": "ignore"}
        ended = subprocess.run(
            command, input=file.read_text(), env=environment, capture_output=True, text=True, check=False
        )
        lines = [line for line in ended.stdout.splitlines() if line.strip()]
        unknown = [line for line in lines if not any(f"Unknown action {action}" in line for action in NEWER)]
        found += [f"{file.name}: {line}" for line in unknown]
        if ended.returncode and not ended.stdout:
            found.append(f"{file.name}: parliament failed: {ended.stderr[-500:]}")
    return len(files), found


def definitions() -> CustomSchemas:
    """Return the schemas of the custom resources."""
    files = [*(OWN / "crds").glob("*.yaml")]
    return custom_schemas(one for file in files for one in resources(file.read_text()))


def build(variant: str) -> str:
    """Return the resources of a variant, as YAML."""
    command = [str(OWN / "bin/kustomize"), "build", str(KUBERNETES / "overlays" / variant)]
    return str(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def build_with_all() -> str:
    """Return the resources of a variant with every component, also those that no overlay has."""
    with tempfile.TemporaryDirectory() as directory:
        copied = Path(directory, "kubernetes")
        shutil.copytree(KUBERNETES, copied)
        file = copied / "overlays/kafka/kustomization.yaml"
        made = yaml.safe_load(file.read_text())
        made["components"] = [f"../../components/{path.name}" for path in sorted((KUBERNETES / "components").iterdir())]
        file.write_text(yaml.safe_dump(made))
        command = [str(OWN / "bin/kustomize"), "build", str(file.parent)]
        return str(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def ask_server(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return what an API server says against the resources of each variant, and how many it took."""
    try:
        with serve_cluster() as cluster:
            if wrong := cluster.define(sorted((OWN / "crds").glob("*.yaml"))):
                return {"server": "asked", "refused": [wrong]}
            refused = [f"{variant}: {text}" for variant, all_ in found.items() for text in cluster.refusals(all_)]
    except NotInstalledError as error:
        return {"server": f"not asked: {error}", "refused": []}
    return {"server": "asked", "refused": refused}


def main() -> int:
    """Check everything, and return the exit status."""
    parser = argparse.ArgumentParser("make manifests", description=__doc__)
    parser.add_argument("--write", type=Path, help="a directory that the built variants are written to")
    directory = parser.parse_args().write
    custom = definitions()
    built = {**{variant: build(variant) for variant in VARIANTS}, "kafka, all components": build_with_all()}
    found = {variant: resources(text) for variant, text in built.items()}
    policies, policy_findings = check_policies()
    result: dict[str, Any] = {
        "variants": list(built),
        "resources": sum(map(len, found.values())),
        "schema_errors": [error for all_ in found.values() for one in all_ for error in errors(one, custom)],
        "disagreements": [f"{variant}: {text}" for variant, all_ in found.items() for text in problems(all_)],
        "lint": [f"{variant}: {text}" for variant, yaml in built.items() for text in lint(yaml)],
        "policies": policies,
        "policy_findings": policy_findings,
    }
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        for variant, text in built.items():
            (directory / f"{variant}.yaml").write_text(text)
    result |= ask_server(found)
    status = exit_status(result)
    print(json.dumps({"manifests": {0: "passed", 1: "failed"}.get(status, "passed what was checked"), **result}))
    return status


def exit_status(result: Mapping[str, Any]) -> int:
    """Return the exit status: what is wrong goes before what was not checked."""
    if any(result[name] for name in ("schema_errors", "disagreements", "lint", "policy_findings", "refused")):
        return 1
    return 0 if result["server"] == "asked" else Exit.UNAVAILABLE


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"manifests: {error}\n{error.stderr}")
