"""The commands of `efo`, a module each: only the one that is called is imported, so that the rest costs nothing."""
