"""Options of Spark's own Kafka source, derived from the relay's Kafka options, to read the relay's topics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from efo.errors import ConfigurationError
from efo_service.relay.kafka.options import KafkaOptions

_SHARD: Final = r"shardId-\d+"
"""Replaces {shard} in a topic name, so that topics of other streams and dead-letter topics do not match."""
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def reader_options(options: KafkaOptions, topic: str) -> dict[str, str]:
    """Return the options of Spark's Kafka source. It reads committed records only.

    `topic`: if it contains {shard}, all topics whose names match are read. Raises ConfigurationError.
    """
    result = {
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        **_topics(topic),
        "kafka.security.protocol": options.security_protocol.upper(),
        # The query waits while a broker restarts, instead of failing.
        "kafka.default.api.timeout.ms": "120000",
    }
    if options.ca_file is not None:
        result |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(options.ca_file)}
    if options.certificate_file is not None:
        raise ConfigurationError(
            "[pipeline] source = kafka does not support mutual TLS: write your own Spark job with format('kafka') and"
            " Kafka's ssl.keystore options"
        )
    if options.sasl_mechanism is not None:
        result |= _sasl(options)
    return result


def _topics(topic: str) -> dict[str, str]:
    if "{shard}" not in topic:
        return {"subscribe": topic}
    return {"subscribePattern": _SHARD.join(re.escape(part) for part in topic.split("{shard}"))}


def _sasl(options: KafkaOptions) -> dict[str, str]:
    module = _LOGIN_MODULES.get(options.sasl_mechanism or "")
    if module is None or options.sasl_password is None:
        raise ConfigurationError(
            f"[pipeline] source = kafka does not support {options.sasl_mechanism}, which needs its login module on"
            " Spark's class path: write your own Spark job with format('kafka') and Kafka's sasl options"
        )
    user, password = _quoted(options.sasl_username or ""), _quoted(options.sasl_password)
    return {
        "kafka.sasl.mechanism": str(options.sasl_mechanism),
        "kafka.sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def jars(directory: Path | None) -> tuple[Path, ...]:
    """Return the jars in a directory. Raises ConfigurationError if it contains none."""
    if directory is None:
        return ()
    found = tuple(sorted(directory.glob("*.jar")))
    if not found:
        raise ConfigurationError(f"[pipeline] jars: no jar in {directory}")
    return found
