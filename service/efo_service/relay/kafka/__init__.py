"""The Kafka sink: records and positions in one transaction."""
