"""The lease store in PostgreSQL."""
