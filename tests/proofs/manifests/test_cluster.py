"""What an API server is asked about the manifests."""

from __future__ import annotations

import pytest

from efo_service.exit_codes import Exit
from proofs.manifests.__main__ import exit_status
from proofs.manifests.cluster import Cluster, pod_of

DEPLOYMENT = {
    "kind": "Deployment",
    "metadata": {"name": "efo", "namespace": "apps"},
    "spec": {"template": {"metadata": {"labels": {"app": "efo"}}, "spec": {"containers": [{"name": "efo"}]}}},
}


class Asked(Cluster):
    """A cluster that notes each command, and refuses pods."""

    def __init__(self) -> None:
        super().__init__("https://127.0.0.1:1")
        self.words: list[tuple[str, ...]] = []

    def kubectl(self, *words: str, text: str = "") -> str:
        self.words.append(words)
        return "violates PodSecurity" if '"Pod"' in text else ""


def test_a_pod_of_a_deployment_is_tried_since_the_security_standard_is_enforced_for_pods_alone() -> None:
    assert pod_of(DEPLOYMENT) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"app": "efo"}, "name": "efo", "namespace": "apps"},
        "spec": {"containers": [{"name": "efo"}]},
    }
    asked = Asked()
    assert asked.refusals([DEPLOYMENT]) == ["Pod efo: violates PodSecurity"]
    assert all("--dry-run=server" in words for words in asked.words)


def test_only_the_namespace_and_its_account_are_created() -> None:
    asked = Asked()
    namespace = {"kind": "Namespace", "metadata": {"name": "apps"}}
    assert asked.refusals([namespace, DEPLOYMENT])[0].startswith("Pod")
    assert ["--dry-run=server" in words for words in asked.words] == [False, True, True, True]


@pytest.mark.parametrize(
    ("server", "lint", "status"),
    [("asked", [], 0), ("not asked: no etcd", [], Exit.UNAVAILABLE), ("not asked: no etcd", ["a finding"], 1)],
)
def test_without_a_server_not_all_was_checked(server, lint, status) -> None:
    result = {"schema_errors": [], "disagreements": [], "lint": lint, "policy_findings": [], "refused": []}
    assert exit_status({**result, "server": server}) == status
