"""Coverage-guided fuzzing of what reads bytes that others wrote: `make fuzz`.

Each target is a function of bytes that raises AssertionError where a property does not hold. `engine` lets atheris
drive one; the tests feed the same functions by Hypothesis, without it.
"""
