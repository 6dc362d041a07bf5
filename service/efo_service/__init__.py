"""The container service around efo: command line, configuration, relay, health, Spark."""
