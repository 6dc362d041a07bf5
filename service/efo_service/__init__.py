"""The container service: command line, configuration, relay, health and Spark."""
