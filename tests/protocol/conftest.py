"""Hypothesis for all tests: the same examples every time, and no timing asserts.

`HYPOTHESIS_PROFILE=explore` looks further, at random.
"""

import os

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
