"""The situations, a module for each kind."""
