"""The configuration: its schema, how it is loaded, and how it is printed."""
