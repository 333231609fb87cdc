"""Settings of the served project. `TWO_HOSTS_DIRECTORY` is the disk that the hosts share."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.two_hosts import services
from benchmarks.two_hosts.network import CENTER
from mcp_django.oauth.toolkit_settings import provider_settings

BASE_URL = "https://bench.example"
DIRECTORY = Path(os.environ["TWO_HOSTS_DIRECTORY"])
REDIS_URL = f"redis://{CENTER}:{services.REDIS_PORT}"

DEBUG = False
SECRET_KEY = "not-a-secret-only-for-the-benchmarks-of-this-project"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
ALLOWED_HOSTS = ["bench.example", CENTER]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "channels",
    "oauth2_provider",
    "django_tasks_db",
    "mcp_django",
    "benchmarks.two_hosts.project.apps.LedgerConfig",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "benchmarks.two_hosts.project.urls"
LOGIN_URL = "admin:login"
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


def database(name: str) -> dict[str, Any]:
    """Return the entry of a database behind the pooler."""
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": services.USER,
        "HOST": CENTER,
        "PORT": services.POOLER_PORT,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "OPTIONS": {"connect_timeout": 5},
    }


DATABASES = {"default": database(services.DATABASE), "replica": database(services.REPLICA)}
DATABASE_ROUTERS = ["benchmarks.two_hosts.project.routers.ReplicaRouter"]
# Of these only the tables matter.
MIGRATION_MODULES = dict.fromkeys(["admin", "auth", "contenttypes", "oauth2_provider", "sessions"])
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}
CHANNEL_LAYERS = {
    "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [REDIS_URL]}}
}
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}

STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "mcp_exports": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": DIRECTORY / "exports"},
    },
}
MEDIA_ROOT = DIRECTORY / "media"
STATIC_URL = "static/"
TIME_ZONE = "UTC"
USE_TZ = True

# The rate is counted as in production, and never reached.
MCP_DJANGO: dict[str, Any] = {"BASE_URL": BASE_URL, "RATES": {"calls": "1000000000/d"}}
# A version from before there were tasks has no such setting.
if find_spec("mcp_django.tasks") is not None:
    MCP_DJANGO["TASK_BACKEND"] = "default"
OAUTH2_PROVIDER = provider_settings(base_url=BASE_URL)
