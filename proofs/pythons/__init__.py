"""The wheel on each Python that efo supports."""
