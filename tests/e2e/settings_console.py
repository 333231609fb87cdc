"""The example project with an admin in the language of the browser."""

from tests.e2e.settings import *  # noqa: F403

MIDDLEWARE = [*MIDDLEWARE[:2], "django.middleware.locale.LocaleMiddleware", *MIDDLEWARE[2:]]  # noqa: F405
