"""The lease store in one SQLite file, for the workers of one machine."""
