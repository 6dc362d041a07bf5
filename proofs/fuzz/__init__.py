"""Coverage-guided fuzzing of the parsers that read bytes from the network: `make fuzz`.

Each target is a function of bytes that raises AssertionError if a property does not hold. `engine` runs one target
under atheris. The tests run the same functions with Hypothesis, without atheris.
"""
