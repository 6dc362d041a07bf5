"""OpenTelemetry: the instruments, and the observer that feeds them from diagnostic events."""
