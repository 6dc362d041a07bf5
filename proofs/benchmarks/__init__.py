"""Measurements, each behind a make target of its own."""
