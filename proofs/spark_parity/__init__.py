"""Spark's Kafka source and efo's source, option by option, with the same records and the same query."""
