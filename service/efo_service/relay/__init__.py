"""The relay: sinks that take what efo reads."""
