"""Settings of the conformance project: open to anyone on this machine, with nothing in it worth a login.

`CONFORMANCE_DATABASE` is the path of its SQLite file; `CONFORMANCE_REDIS` the URL of a Redis server that its workers
share, without which there can be one worker only; `CONFORMANCE_PREFIX` begins the names of what they keep there.
"""

import os
from typing import Any

from example_project.databases import database_from
from mcp_django.conf import Settings
from tests.tables import UNMIGRATED

REDIS_URL = os.environ.get("CONFORMANCE_REDIS")

# Lets the endpoint take its own origin from the request, whatever port it was given.
DEBUG = True
SECRET_KEY = "not-a-secret-only-for-the-conformance-suite"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "channels",
    "oauth2_provider",
    "rest_framework",
    "mcp_django",
    "tests.conformance_project",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "tests.conformance_project.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
DATABASES = {"default": database_from(os.environ.get("CONFORMANCE_DATABASE", ":memory:"))}
MIGRATION_MODULES = UNMIGRATED
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
USE_TZ = True
# The suite has tools with longer names than some clients bear.
SILENCED_SYSTEM_CHECKS = ["mcp_django.W007"]

# Of each server its own, as those of several test runs may share one Redis.
PREFIX = f"conformance-{os.environ.get('CONFORMANCE_PREFIX', '')}"
CACHES: dict[str, dict[str, Any]] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
if REDIS_URL:
    CACHES["default"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": PREFIX,
    }
    CHANNEL_LAYERS["default"] = {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": PREFIX},
    }

MCP_DJANGO: dict[str, Any] = {
    "AUTHENTICATION_CLASSES": [],
    "SERVER": {"name": "mcp-django-conformance"},
    "INSTRUCTIONS": "Everything here is made up.",
    # The suite calls faster than a person's client.
    "RATES": {"calls": None},
}
# Nobody signs in, so that all clients of the tests count as one user.
Settings.MAX_SESSIONS = 10_000
Settings.MAX_STREAMS = Settings.MAX_CONCURRENT_CALLS = 1_000
