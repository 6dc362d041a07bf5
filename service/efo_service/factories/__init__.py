"""From the configuration to the objects that it describes."""
