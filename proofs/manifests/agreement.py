"""Whether the resources of a variant agree with each other, with efo's settings and with the image. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

Resource = Mapping[str, Any]

PATHS: Final = frozenset({"/livez", "/readyz", "/metrics", "/status"})
AFTER_DRAIN: Final = 10.0
"""Seconds between the end of the drain and SIGKILL, at least: commit, checkpoint, release, exit."""


def disagreements(
    resources: Sequence[Resource], service: Mapping[str, Any], known: frozenset[str], user: str
) -> Iterator[str]:
    """Yield what does not fit together, in sentences.

    `service`: the settings of [service] that the pod has. `known`: the environment variables that efo knows. `user`:
    USER of the image.
    """
    deployment = _one(resources, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    containers = pod["containers"]
    yield from _selectors(resources, labels)
    yield from _ports(resources, containers, service["port"])
    yield from _hardening(pod, user)
    yield from (
        f"efo has no setting {one['name']}" for each in containers for one in each["env"] if one["name"] not in known
    )
    yield from _alerts(resources)
    if pod["terminationGracePeriodSeconds"] < service["drain_seconds"] + AFTER_DRAIN:
        yield f"the grace period must be {AFTER_DRAIN:g} s longer than drain_seconds, {service['drain_seconds']:g}"
    volumes = {volume["name"] for volume in pod["volumes"]}
    if (mounted := {mount["name"] for each in containers for mount in each["volumeMounts"]}) != volumes:
        yield f"volumes {sorted(volumes)} are not those that are mounted, {sorted(mounted)}"


def _one(resources: Sequence[Resource], kind: str) -> Resource:
    return next(one for one in resources if one["kind"] == kind)


def _selectors(resources: Sequence[Resource], labels: Mapping[str, str]) -> Iterator[str]:
    for one in resources:
        spec = one.get("spec", {})
        match one["kind"]:
            case "Service":
                selector = spec["selector"]
            case "Deployment" | "PodDisruptionBudget":
                selector = spec["selector"]["matchLabels"]
            case "NetworkPolicy":
                selector = spec["podSelector"]["matchLabels"]
            case "ServiceMonitor":  # selects the Service
                selector, labels_of = spec["selector"]["matchLabels"], _one(resources, "Service")["metadata"]["labels"]
                if not selector.items() <= labels_of.items():
                    yield "the ServiceMonitor does not select the Service"
                continue
            case "ScaledObject":
                if spec["scaleTargetRef"]["name"] != _one(resources, "Deployment")["metadata"]["name"]:
                    yield "the ScaledObject scales no Deployment of these"
                continue
            case _:
                continue
        if not selector.items() <= labels.items():
            yield f"{one['kind']} {one['metadata']['name']} does not select the pods"


def _ports(resources: Sequence[Resource], containers: Sequence[Resource], port: int) -> Iterator[str]:
    container = containers[0]
    ports = {one["name"]: one["containerPort"] for each in containers for one in each["ports"]}
    if port not in ports.values():
        yield f"the container has no port {port}, that of [service] port"
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    named = [probe["port"] for probe in probes]
    named += [one["targetPort"] for one in _one(resources, "Service")["spec"]["ports"]]
    rules = _one(resources, "NetworkPolicy")["spec"]["ingress"]
    named += [one["port"] for rule in rules for one in rule["ports"]]
    yield from (f"no port of the container has the name {name}" for name in named if name not in ports)
    paths = [probe["path"] for probe in probes]
    for monitor in (one for one in resources if one["kind"] == "ServiceMonitor"):
        paths += [endpoint["path"] for endpoint in monitor["spec"]["endpoints"]]
    yield from (f"efo does not serve {path}" for path in paths if path not in PATHS)
    if probes[1]["path"] != "/livez" or probes[2]["path"] != "/readyz":
        yield "liveness must ask /livez, so that an outage restarts nothing, and readiness /readyz"


def _hardening(pod: Resource, user: str) -> Iterator[str]:
    context = pod["securityContext"]
    if not context["runAsNonRoot"] or f"{context['runAsUser']}:{context['runAsGroup']}" != user:
        yield f"the pod must run as {user}, the image's user"
    if context["seccompProfile"] != {"type": "RuntimeDefault"}:
        yield "the seccomp profile must be RuntimeDefault"
    if pod["automountServiceAccountToken"]:
        yield "efo never calls Kubernetes: mount no token"
    expected = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for container in pod["containers"]:
        if container["securityContext"] != expected:
            yield f"the security context of the container {container['name']} must be {expected}"
        if not {"/tmp", "/var/lib/efo"} <= {mount["mountPath"] for mount in container["volumeMounts"]}:  # noqa: S108
            yield "with a read-only root, /tmp and /var/lib/efo must be volumes"
        if any(one["secretRef"].get("optional") for one in container["envFrom"]):
            yield f"without its Secret, the container {container['name']} must not start"


def _alerts(resources: Sequence[Resource]) -> Iterator[str]:
    """Whoever is paged has no checkout."""
    rules = [one for one in resources if one["kind"] == "PrometheusRule"]
    for rule in (
        rule for one in rules for group in one["spec"]["groups"] for rule in group["rules"] if "alert" in rule
    ):
        if not rule["annotations"]["runbook_url"].startswith("https://"):
            yield f"the runbook_url of {rule['alert']} is not absolute"
