from tests.e2e.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.e2e.roads"]  # noqa: F405
# Django logs a traceback for a host that it refuses; a test asks for one.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {"django.security.DisallowedHost": {"level": "CRITICAL"}},
}
