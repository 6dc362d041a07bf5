"""Dashboards and alerts on a real Prometheus: each panel has data, each alert fires in its fault, and none without."""
