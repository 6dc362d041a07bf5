"""The stores in which other libraries keep their checkpoints."""
