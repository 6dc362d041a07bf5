"""End to end with other people's servers: what is too long, or needs too much, for the tests."""
