"""What users of other libraries can do, and efo's answer, with the test or the command that shows it."""
