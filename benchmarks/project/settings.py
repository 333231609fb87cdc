"""Settings of the measured project.

`BENCH_DATABASE` is the name of an SQLite file or the URL of a PostgreSQL or MySQL database, `BENCH_MIDDLEWARE=default`
puts Django's default middleware in front, and `BENCH_CALL_LOG=off` keeps no log of calls.
"""

import os
from typing import Any

from example_project.databases import database_from
from mcp_django.oauth.toolkit_settings import provider_settings

BASE_URL = "https://bench.example"
ENDPOINT = f"{BASE_URL}/mcp"

DEBUG = False
SECRET_KEY = "not-a-secret-only-for-the-benchmarks-of-this-project"
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]

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
    "benchmarks.project.apps.BenchConfig",
]

DEFAULT_MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
MIDDLEWARE = DEFAULT_MIDDLEWARE if os.environ.get("BENCH_MIDDLEWARE") == "default" else []

ROOT_URLCONF = "benchmarks.project.urls"
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

DATABASES = {"default": database_from(os.environ.get("BENCH_DATABASE", ":memory:"))}
# These are made as their models are now: the migrations of the toolkit take longer than the rows.
MIGRATION_MODULES = dict.fromkeys(["admin", "auth", "contenttypes", "oauth2_provider", "sessions"])
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# Where `benchmarks/exporting.py` has files written.
STORAGES: dict[str, Any] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
if exports := os.environ.get("BENCH_EXPORTS"):
    STORAGES["mcp_exports"] = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": exports},
    }

TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"

# The rate is counted as in production, and never reached.
MCP_DJANGO = {
    "BASE_URL": BASE_URL,
    "RATES": {"calls": "1000000000/d"},
    "CALL_LOG": os.environ.get("BENCH_CALL_LOG", "on") == "on",
}
OAUTH2_PROVIDER = provider_settings(base_url=BASE_URL)
