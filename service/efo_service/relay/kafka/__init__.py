"""The Kafka sink: it commits records and position in one transaction."""
