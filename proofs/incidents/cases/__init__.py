"""The incidents, a module for each part that fails."""
