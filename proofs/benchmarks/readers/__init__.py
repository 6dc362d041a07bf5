"""Client programs that read a load and print samples of what they have read, and how they are run."""
