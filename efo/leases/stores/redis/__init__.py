"""A lease store in Redis."""
