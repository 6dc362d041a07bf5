"""An API server of Kubernetes, which takes the manifests by a server-side dry run. Nothing of them runs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trustme

from proofs.go_build import build
from proofs.local_servers.processes import Server, directory
from proofs.local_servers.running import NotInstalledError
from proofs.paths import ROOT, TOOLS
from proofs.ports import free_port

_SOURCE: Final = ROOT / "proofs/manifests/apiserver"
_PROGRAM: Final = TOOLS / "manifests/bin/kube-apiserver"
_NEEDED: Final = {"go": "golang", "etcd": "etcd-server", "kubectl": "kubernetes-client"}
"""The programs, and Debian's packages that have them."""
_TOKEN: Final = "not-a-secret"  # noqa: S105 - of a server of this process, on 127.0.0.1
_FIRST: Final = {"Namespace", "ServiceAccount"}
"""The kinds that are created, since what is tried belongs to them."""


class Cluster:
    """kubectl with an API server. `url`: of the server."""

    def __init__(self, url: str) -> None:
        self._command = ["kubectl", f"--server={url}", f"--token={_TOKEN}", "--insecure-skip-tls-verify"]

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run a command; return what went wrong or what it warns of, "" if nothing."""
        ended = subprocess.run([*self._command, *words], input=text, capture_output=True, text=True, check=False)  # noqa: S603
        return ended.stderr.strip() or ("" if ended.returncode == 0 else ended.stdout.strip() or "failed")

    def define(self, definitions: Sequence[Path]) -> str:
        """Create custom resource definitions, and wait until they are served. Return what went wrong."""
        files = [f"--filename={file}" for file in definitions]
        return self.kubectl("apply", "--server-side", *files) or self.kubectl(
            "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"
        )

    def refusals(self, found: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return what the server says against resources, and against the pods that they would make."""
        for one in found:
            if one["kind"] in _FIRST and (wrong := self.kubectl("apply", "--server-side", "-f-", text=json.dumps(one))):
                return [wrong]
        tried = [*found, *(pod_of(one) for one in found if one["kind"] == "Deployment")]
        asked = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f-")
        return [
            f"{one['kind']} {one['metadata']['name']}: {said}"
            for one in tried
            if (said := self.kubectl(*asked, text=json.dumps(one)))
        ]


def pod_of(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod of a Deployment: the server enforces the Pod Security Standard of its namespace for pods alone."""
    template = deployment["spec"]["template"]
    names = {name: deployment["metadata"][name] for name in ("name", "namespace")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], **names}, "spec": template["spec"]}


@contextmanager
def serve_cluster() -> Iterator[Cluster]:
    """Run etcd and an API server, which is built first. Raises NotInstalledError, GoBuildError and NotReadyError."""
    if missing := [package for name, package in _NEEDED.items() if shutil.which(name) is None]:
        raise NotInstalledError(f"run `apt-get install {' '.join(missing)}`")
    build(_SOURCE, _PROGRAM)
    with directory() as path:
        (path / "tokens.csv").write_text(f"{_TOKEN},admin,admin,system:masters\n")
        trustme.CA().private_key_pem.write_to_path(str(path / "key.pem"))
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        port = free_port()
        etcd = Server(_etcd(path, client, peer), log=path / "etcd.log", probe=lambda: None)
        etcd.start()
        cluster = Cluster(f"https://127.0.0.1:{port}")
        api = Server(_api(path, client, port), log=path / "api.log", probe=lambda: _probe(cluster))
        try:
            api.start()
            yield cluster
        finally:
            api.stop(signal.SIGTERM, 10)
            etcd.stop(signal.SIGTERM, 10)


def _etcd(path: Path, client: str, peer: str) -> list[str]:
    urls = [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    peers = [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
    return ["etcd", f"--data-dir={path / 'etcd'}", *urls, *peers]


def _api(path: Path, store: str, port: int) -> list[str]:
    key = path / "key.pem"
    accounts = [f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"]
    return [
        str(_PROGRAM), f"--etcd-servers={store}", "--bind-address=127.0.0.1", f"--secure-port={port}",
        f"--cert-dir={path / 'certificates'}", "--service-cluster-ip-range=10.96.0.0/24",
        f"--token-auth-file={path / 'tokens.csv'}", "--authorization-mode=AlwaysAllow",
        "--service-account-issuer=https://kubernetes.default.svc", *accounts,
    ]  # fmt: skip


def _probe(cluster: Cluster) -> None:
    if said := cluster.kubectl("get", "--raw=/readyz", "--request-timeout=5s"):
        raise ConnectionError(said)
