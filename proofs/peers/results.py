"""What a run found, and its form as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from proofs.peers.statistics import ratios, summarize


@dataclass(slots=True)
class Results:
    """`rounds`: by peer and metric, the value of each round. `versions`: by peer. `skipped`: by peer, what is missing.

    `failed`, `cannot`: by peer and figure, the error or the reason.
    """

    versions: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    cannot: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Return the results of an earlier run from its JSON. What failed in it may be measured again."""
        peers: Mapping[str, Any] = found["peers"]
        versions = {name: peer["version"] for name, peer in peers.items()}
        rounds = {
            name: {metric: list(values["values"]) for metric, values in peer["metrics"].items()}
            for name, peer in peers.items()
        }
        return cls(versions, rounds, cannot={name: dict(why) for name, why in found["cannot"].items()})

    def add(self, peer: str, values: Mapping[str, float]) -> None:
        """Add the values of one round."""
        rounds = self.rounds.setdefault(peer, {})
        for metric, value in values.items():
            rounds.setdefault(metric, []).append(value)

    def has_failed(self, peer: str, part: str) -> bool:
        """Return whether an earlier round failed: the next ones would wait for the same timeout."""
        return part in self.failed.get(peer, {})

    def remarks(self) -> Sequence[str]:
        """Return a line for each peer and figure without values, with the reason."""
        lines = [f"{peer}: left out, {why}" for peer, why in self.skipped.items()]
        for kind, found in (("failed", self.failed), ("not measured", self.cannot)):
            lines += [f"{peer}, {part}: {kind}: {why}" for peer, parts in found.items() for part, why in parts.items()]
        return lines

    def as_json(self, base: str, machine: Mapping[str, Any]) -> dict[str, Any]:
        """Return everything: per peer its version, metrics with spread and rounds, and the base's ratios to it."""
        compared = self.ratios(base)
        peers = {
            peer: {
                "version": self.versions[peer],
                "metrics": {name: {**asdict(summarize(v)), "values": v} for name, v in rounds.items()},
                f"{base}_ratio": compared.get(peer, {}),
            }
            for peer, rounds in self.rounds.items()
        }
        missing = {"skipped": self.skipped, "failed": self.failed, "cannot": self.cannot}
        return {"machine": dict(machine), "peers": peers, **missing}

    def ratios(self, base: str) -> dict[str, dict[str, float | None]]:
        """Return the base's ratio to each peer, for each metric."""
        return ratios(self.rounds, base)
