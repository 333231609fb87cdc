"""Messages that are nearly right, for the tests that no message brings the server down.

`FUZZ_MESSAGES` is how many each of these tests sends in each era; by default few, and the same ones every time.
"""

import os

from hypothesis import HealthCheck, settings

from tests.cases import drawn

BY_DEFAULT = drawn(1_500)
MESSAGES = int(os.environ.get("FUZZ_MESSAGES", BY_DEFAULT))


def budget(*, together: int = 1, part: int = 1) -> settings:
    """The settings of a test whose examples have `together` messages each, and that sends one `part`th of them."""
    return settings(
        max_examples=max(MESSAGES // together // part, 1),
        # What is bounded is a test of what is known; a long run looks for what is not.
        derandomize=MESSAGES <= BY_DEFAULT,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
