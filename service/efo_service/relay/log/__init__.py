"""The embedded log: a sink that commits data and position in one rename, in the schema of Spark's Kafka source."""
