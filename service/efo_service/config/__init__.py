"""The configuration: its schema, loading and printing."""
