"""Each record once in the database of an application, whose workers are killed at random moments."""
