"""Incidents of operators, played on real processes: `make incidents`."""
