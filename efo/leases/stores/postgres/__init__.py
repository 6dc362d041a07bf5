"""Leases in PostgreSQL."""
