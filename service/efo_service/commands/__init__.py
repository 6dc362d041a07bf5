"""The commands of `efo`, one module each. Only the module of the called command is imported."""
