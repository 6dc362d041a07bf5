"""Creates the objects that the configuration describes."""
