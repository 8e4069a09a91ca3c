"""Settings of all tests."""

import os
import signal

from hypothesis import settings

# A busy machine must not fail a test: no deadlines. Under CI the examples are the same every time.
settings.register_profile(
    "secondguess", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True
)
settings.load_profile("secondguess")

# What a shell starts in the background is told to ignore Ctrl-C, and passes that on to the commands
# that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
