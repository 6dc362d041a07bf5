"""Benchmarks; most have a make target."""
