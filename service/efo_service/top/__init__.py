"""What `efo top` shows: samples of a running service, the view of two of them, and its table."""
