"""Checks of the Kafka sink: the brokers and the topics. No producer is made: a transactional id fences who uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from confluent_kafka.admin import AdminClient

from efo_service.exit_codes import Exit
from efo_service.operations.doctor.machine import in_thread
from efo_service.operations.doctor.running import Check, Outcome, failed, not_tested, passed, untested
from efo_service.relay.kafka.client import ConnectionErrors, client_config, open_admin, wait_for_brokers
from efo_service.relay.kafka.options import CHECKPOINT_PARTITIONS, KafkaOptions
from efo_service.relay.kafka.topics import KafkaTopic, TopicSpec, checkpoint_topic, find_topic, records_topic

BROKERS: Final = "kafka brokers"
_REMEDY: Final = "check [relay.kafka] bootstrap_servers, security_protocol and the network"


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """The Kafka sink of the service. `topics`: the topics of records by the names of their checks."""

    options: KafkaOptions
    application: str
    topics: Mapping[str, str]
    region: str | None = None
    profile: str | None = None
    proxy_url: str | None = None


def kafka_checks(target: KafkaTarget, seconds: float) -> list[Check]:
    """Return the checks of the Kafka sink. `seconds`: how long to wait for a response, less than a check's limit."""
    options, cluster = target.options, _Cluster(target, seconds)
    specs = {
        name: records_topic(topic, options.partitions, options.replication_factor, create=options.create_topics)
        for name, topic in target.topics.items()
    }
    if options.delivery == "exactly_once":
        specs["kafka checkpoint topic"] = checkpoint_topic(
            options.checkpoint_topic,
            CHECKPOINT_PARTITIONS,
            options.replication_factor,
            create=options.create_topics,
        )
    checks = [
        Check(BROKERS, in_thread(cluster.reach), _REMEDY),
        *(Check(name, in_thread(partial(cluster.look, spec)), _REMEDY, (BROKERS,)) for name, spec in specs.items()),
    ]
    if options.delivery == "exactly_once":
        needed = f"`efo run` needs Describe and Write on the transactional ids {target.application}/*"
        checks.append(untested("kafka transactional id", f"using one fences the worker that has it; {needed}"))
    return checks


@dataclass
class _Cluster:
    """The checks, which run in threads."""

    target: KafkaTarget
    seconds: float
    brokers: int = 0
    admin: AdminClient = field(init=False)

    def reach(self) -> Outcome:
        """Connect to the cluster."""
        target, errors = self.target, ConnectionErrors()
        self.admin = open_admin(client_config(target.options, target.region, target.profile, target.proxy_url), errors)
        servers = target.options.bootstrap_servers
        self.brokers = wait_for_brokers(self.admin, errors, servers, self.seconds)
        return passed(f"{self.brokers} brokers, reached by {servers}")

    def look(self, spec: TopicSpec) -> Outcome:
        """Look for a topic."""
        if "{shard}" in spec.name:
            return not_tested(f"each shard has a topic of its own, {spec.name}")
        return judge_topic(spec, find_topic(self.admin, spec, self.seconds), self.brokers)


# --- what it means: pure ---------------------------------------------------------------------------------------


def judge_topic(spec: TopicSpec, found: KafkaTopic | None, brokers: int) -> Outcome:
    """Return what was found of a topic. `found`: None if it is missing, and `efo run` will create it."""
    if found is not None:
        fewer = f", fewer than the {spec.partitions} that efo would create" * (found.partitions < spec.partitions)
        return passed(f"{spec.name} has {found.partitions} partitions{fewer}")
    if spec.replication > brokers:
        return failed(
            f"{spec.name} does not exist, and {brokers} brokers cannot hold {spec.replication} replicas",
            "set [relay.kafka] replication_factor to at most the number of brokers, or create the topic",
            Exit.CONFIGURATION,
        )
    return passed(f"{spec.name} does not exist: `efo run` creates it with {spec.partitions} partitions")
