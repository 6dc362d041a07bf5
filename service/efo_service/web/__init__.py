"""HTTP endpoints of the service: health, readiness, metrics and status."""
