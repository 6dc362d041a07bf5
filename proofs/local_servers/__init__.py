"""Real servers on loopback ports, for tests and proofs: PostgreSQL, MariaDB, Redis, DynamoDB and Kafka."""
