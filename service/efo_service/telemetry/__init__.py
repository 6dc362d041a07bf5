"""The service's logs, and its OpenTelemetry SDK."""
