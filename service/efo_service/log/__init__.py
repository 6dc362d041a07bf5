"""The embedded log: a sink that commits records and position in one rename, in the schema of Spark's Kafka source."""
