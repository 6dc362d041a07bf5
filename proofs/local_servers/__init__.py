"""Real servers on loopback ports, for tests and proofs: PostgreSQL, Redis, DynamoDB and Kafka."""
