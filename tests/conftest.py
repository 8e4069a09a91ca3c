"""Settings of all tests."""

import os

from hypothesis import settings

# A busy machine must not fail a test: no deadlines. Under CI the examples are the same every time.
settings.register_profile(
    "secondguess", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True
)
settings.load_profile("secondguess")
