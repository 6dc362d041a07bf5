"""Logs and the OpenTelemetry SDK of the service."""
