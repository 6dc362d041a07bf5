"""The native step beside the Python step: built, compared on made and damaged input, and counted for unsafe code."""
