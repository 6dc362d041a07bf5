"""The proofs: each is a command, `make NAME`. `make proofs` lists them; docs/proofs.md says what each shows.

A row is one line: proofs/proofs.mk reads the names from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Proof:
    """One proof. `module`: run by `python -m`. `example`: what may follow its name. `takes`: on two cores, if long."""

    name: str
    module: str
    sentence: str
    example: str = 'ARGS="--help"'
    takes: str = ""


PROOFS: Final = {
    "Whole consumers": (
        Proof("sim", "proofs.simulation", "Simulate whole consumers in virtual time", "SEEDS=500", takes="3 min"),
        Proof("forms", "proofs.forms", "Every form of a program, crossed with what holds in each", 'ARGS="-k until"'),
        Proof("edges", "proofs.edges", "Situations that users report: credentials, clocks, proxies, new streams"),
        Proof("attacks", "proofs.attacks", "Attacks on the port, the decoders and the neighbours of a service"),
        Proof("incidents", "proofs.incidents", "Incidents of operators: when and how they are seen, and what is lost"),
        Proof("scenarios", "tools.scenarios", "The situations of docs/guarantees.md and their tests", 'ARGS="G45"'),
        Proof("house", "tools.house", "What the code weighs, and what stands twice", 'ARGS="--before HEAD~20"'),
        Proof("parity", "tools.parity", "What users of other libraries can do, and its tests", 'ARGS="-k lease"'),
        Proof("soak", "proofs.soak", "A service under load and faults: nothing grows", "MINUTES=60", takes="1 h"),
        Proof("fuzz", "proofs.fuzz", "Fuzz the parsers of received bytes", 'SECONDS=60 ARGS="http2"', takes="15 min"),
        Proof("native", "proofs.native.build", "Build and install efo-native: records by Rust (needs cargo)"),
        Proof("native-parity", "proofs.native.parity", "The native and the Python step agree", 'ARGS="--cases 10000"'),
        Proof("mutants", "proofs.mutants", "Change the code: does a test notice", "SEED=1 SAMPLE=100", takes="hours"),
        Proof("compat", "proofs.compatibility", "Read what earlier versions wrote; upgrade", 'ARGS="--upgrade"'),
        Proof("conformance", "tools.conformance", "One suite on each lease store", 'ARGS="--store redis"'),
        Proof("scale", "proofs.scale", "Fleets within AWS's limits, virtual time", 'ARGS="1000x20@30"', takes="15 min"),
        Proof("failover", "proofs.benchmarks.failover", "The time to take over leases after a crash", takes="5 min"),
    ),
    "From end to end, through kills": (
        Proof("exactly-once", "proofs.e2e.exactly_once", "Applications that keep positions are killed", takes="5 min"),
        Proof("log-e2e", "proofs.e2e.log", "Relays and Spark are killed; the log loses and repeats nothing"),
        Proof("kafka-e2e", "proofs.e2e.kafka", "The same with a Kafka broker, which is killed too"),
        Proof("object-store-e2e", "proofs.e2e.object_store", "The same on object stores", 'ARGS="versitygw"'),
        Proof("kinesis-source-e2e", "proofs.e2e.kinesis_source", 'format("kinesis") and its planners are killed'),
        Proof("tables-e2e", "proofs.e2e.tables", "Tables of Delta and Iceberg on S3", 'ARGS="--only delta"'),
        Proof("cluster-e2e", "proofs.e2e.cluster", "A standalone Spark cluster without efo; workers are killed"),
        Proof("readers", "proofs.e2e.readers", "pandas, Polars, DuckDB and Spark 3.5 read a log that is compacted"),
        Proof("spark-versions", "proofs.spark_versions", "Each Spark from 4.0 on", 'ARGS="4.1"', takes="30 min"),
        Proof("spark-parity", "proofs.spark_parity", "Options of Spark's Kafka source, on a broker and the log"),
    ),
    "Beside other software": (
        Proof("third-party-clients", "proofs.interop.clients", "Other clients read the fake", 'ARGS="boto3"'),
        Proof("third-party-servers", "proofs.interop.servers", "efo reads other servers", 'ARGS="ministack"'),
        Proof("aws-conformance", "proofs.interop.comparison", "Compare the fake with AWS", "ENDPOINT=https://..."),
        Proof("kcl-interop", "proofs.interop.kcl", "KCL and efo share an application's leases", takes="5 min"),
        Proof("kcl-multilang", "proofs.interop.multilang", "Processors of amazon_kclpy and aws-kcl, without Java"),
        Proof("migrate-test", "proofs.migration", "Applications move to efo and back", 'ARGS="kcl-3"', takes="30 min"),
        Proof("peers", "proofs.peers", "Measure efo beside other consumers", 'ARGS="kcl boto3"', takes="hours"),
    ),
    "Speed": (
        Proof("bench", "proofs.benchmarks", "Each figure beside its target", 'ARGS="--only data-path"', takes="15 min"),
        Proof("bench-quick", "proofs.benchmarks.quick", "Ratios to fixed clients and to kept ones", takes="3 min"),
        Proof("bench-native", "proofs.benchmarks.native", "efo-native beside the Python step", takes="4 min"),
        Proof("bench-core", "proofs.benchmarks.core", "Renewal, back-pressure and the data path"),
        Proof("bench-surfaces", "proofs.benchmarks.surfaces", "CPU time of a batch: trio, asyncio, synchronous"),
        Proof("bench-fake", "proofs.benchmarks.fake", "Throughput and resources of the fake"),
        Proof("bench-polling", "proofs.benchmarks.polling", "CPU time of polling and of fan-out", takes="1 min"),
        Proof("bench-producer", "proofs.benchmarks.producer", "What a producer puts per second of CPU time"),
        Proof("bench-relay", "proofs.benchmarks.relay", "The relay, and Spark on its log"),
    ),
    "What is run and shipped": (
        Proof("dashboards", "proofs.dashboards", "Each panel has data, each alert fires in its fault", takes="7 min"),
        Proof("web-test", "proofs.web", "The page of a real service in Chromium"),
        Proof("image-test", "proofs.image", "The images, built by buildah and run by runc", 'ARGS="--target kafka"'),
        Proof("manifests", "proofs.manifests", "Kubernetes manifests and IAM policies", 'ARGS="--write DIR"'),
        Proof("release-check", "proofs.release", "What a release has, built, installed and tried", takes="6 min"),
        Proof("pythons", "proofs.pythons", "The wheel on each Python", 'ARGS="3.14"', takes="45 min"),
        Proof("audit", "proofs.audit", "Licences and vulnerabilities of dependencies; an SBOM", 'ARGS="--sbom PATH"'),
        Proof("api", "tools.api", "The public names, from a base install", 'ARGS="--json"'),
    ),
}


def find(name: str) -> Proof | None:
    """Return the proof of this name."""
    return next((proof for proofs in PROOFS.values() for proof in proofs if proof.name == name), None)
