"""The manifests for Kubernetes: what efo's settings and the image say of them, without a tool that builds them."""

from __future__ import annotations

import copy
import tomllib

import pytest
import yaml

from proofs.manifests.schemas import errors
from proofs.manifests.variant import KUBERNETES, VARIANTS, known_variables, problems, resources, settings_of
from tests.paths import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def kustomization(path):
    return yaml.safe_load((KUBERNETES / path / "kustomization.yaml").read_text())


def base():
    names = kustomization("base")["resources"]
    return [one for name in names for one in resources((KUBERNETES / "base" / name).read_text())]


def variant(name):
    """The base with the settings of a variant and what it adds; not its patches."""
    folder = KUBERNETES / "overlays" / name
    config = {"kind": "ConfigMap", "metadata": {"name": "efo"}, "data": {"efo.toml": (folder / "efo.toml").read_text()}}
    found = [*base(), config]
    for component in kustomization(f"overlays/{name}").get("components", ()):
        path = folder / component
        found += [one for file in kustomization(path)["resources"] for one in resources((path / file).read_text())]
    return found


def pod(found):
    return next(one for one in found if one["kind"] == "Deployment")["spec"]["template"]["spec"]


@pytest.mark.parametrize("one", base(), ids=lambda one: one["kind"])
def test_a_resource_has_the_fields_of_its_kind(one):
    assert list(errors(one, {})) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_agrees_with_the_settings_and_the_image(name):
    assert list(problems(variant(name))) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_every_folder_and_file_of_a_variant_is_used(name):
    files = {path.name for path in (KUBERNETES / "overlays" / name).iterdir()} - {"kustomization.yaml"}
    made = kustomization(f"overlays/{name}")
    used = {file for one in made["configMapGenerator"] for file in one["files"]} | set(made["resources"])
    assert files <= used
    assert {path.name for path in (KUBERNETES / "base").iterdir()} - {"kustomization.yaml"} == set(
        kustomization("base")["resources"]
    )


def test_the_image_is_that_of_this_version():
    (image,) = kustomization("base")["images"]
    assert (image["name"], image["newTag"]) == (pod(base())["containers"][0]["image"], VERSION)


def test_the_variant_with_one_writer_never_runs_two_pods():
    made = kustomization("overlays/log")
    spec = yaml.safe_load(made["patches"][0]["patch"])["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    volume = yaml.safe_load((KUBERNETES / "overlays/log/volume.yaml").read_text())
    assert volume["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert settings_of(variant("log")).relay.sink == "log"
    assert "../../components/autoscaling" not in made["components"]


def test_the_variant_with_several_pods_shares_leases_and_sink():
    settings = settings_of(variant("kafka"))
    assert (settings.leases.store, settings.relay.sink) == ("dynamodb", "kafka")
    assert settings.relay.kafka.bootstrap_servers.endswith(":9098")  # the port that the network policy opens
    made = kustomization("overlays/kafka")
    assert "port: 9098" in made["patches"][0]["patch"]


def test_the_autoscaler_asks_for_a_metric_that_the_rules_record():
    scaled = yaml.safe_load((KUBERNETES / "components/autoscaling/scaledobject.yaml").read_text())
    query = scaled["spec"]["triggers"][1]["metadata"]["query"]
    recorded = (KUBERNETES / "components/monitoring/prometheusrule.yaml").read_text()
    settings = settings_of(variant("kafka"))
    assert query.removeprefix("max(").partition("{")[0] in recorded
    assert f'"{settings.consumer.application}"' in query
    assert f'"{settings.kinesis.stream}"' in query


def test_secrets_come_from_a_required_secret_and_are_in_no_file():
    assert pod(base())["containers"][0]["envFrom"] == [{"secretRef": {"name": "efo"}}]
    assert "Secret" not in {one["kind"] for name in VARIANTS for one in variant(name)}


def test_the_variables_of_the_environment_are_those_of_the_settings():
    assert {"EFO_CONFIG", "EFO_SERVICE__PORT", "EFO_LEASES__DYNAMODB__TABLE", "EFO_LEASES__URL"} <= known_variables()


def set_in(*path, value):
    def change(found):
        place = pod(found)
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    return change


def relabel(kind):
    def change(found):
        spec = next(one for one in found if one["kind"] == kind)["spec"]
        (spec["selector"] if kind == "Service" else spec.get("selector", spec.get("podSelector"))["matchLabels"])[
            "a"
        ] = "b"

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (set_in("terminationGracePeriodSeconds", value=30), "grace period"),
        (set_in("securityContext", "runAsUser", value=0), "must run as 10001:10001"),
        (set_in("securityContext", "seccompProfile", value={}), "seccomp"),
        (set_in("containers", 0, "securityContext", value={}), "security context"),
        (set_in("automountServiceAccountToken", value=True), "mount no token"),
        (set_in("containers", 0, "volumeMounts", value=[]), "must be volumes"),
        (set_in("containers", 0, "ports", value=[{"name": "http", "containerPort": 80}]), "no port 8080"),
        (set_in("containers", 0, "ports", value=[{"name": "web", "containerPort": 8080}]), "the name http"),
        (set_in("containers", 0, "livenessProbe", "httpGet", "path", value="/readyz"), "liveness must ask /livez"),
        (set_in("containers", 0, "readinessProbe", "httpGet", "path", value="/healthz"), "does not serve /healthz"),
        (relabel("Service"), "Service efo does not select"),
        (relabel("PodDisruptionBudget"), "PodDisruptionBudget efo does not select"),
        (relabel("NetworkPolicy"), "NetworkPolicy efo does not select"),
        (relabel("ServiceMonitor"), "does not select the Service"),
    ],
)
def test_what_does_not_agree_is_reported(change, problem):
    found = copy.deepcopy(variant("kafka"))
    change(found)
    assert any(problem in text for text in problems(found))


def test_an_unknown_variable_is_reported():
    from proofs.manifests.agreement import disagreements  # noqa: PLC0415

    found = copy.deepcopy(variant("kafka"))
    known = known_variables() - {"EFO_LEASES__WORKER_ID"}
    reported = list(disagreements(found, {"port": 8080, "drain_seconds": 25.0}, known, "10001:10001"))
    assert reported == ["efo has no setting EFO_LEASES__WORKER_ID"]
