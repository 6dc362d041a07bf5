"""The lease stores: memory, SQLite, DynamoDB (KCL's lease table), PostgreSQL, Redis."""
