"""Where leases are kept: memory, SQLite, DynamoDB (KCL's table), PostgreSQL, Redis."""
