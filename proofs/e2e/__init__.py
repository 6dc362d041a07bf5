"""End-to-end runs with real servers and Spark, which take too long or need too much for the test suite."""
