"""Settings of the unit tests. `TEST_DATABASE_URL` runs them on PostgreSQL instead of SQLite."""

import os
from pathlib import Path

from example_project.databases import database_from
from mcp_django.oauth.toolkit_settings import provider_settings
from tests.tables import UNMIGRATED

BASE_DIR = Path(__file__).resolve().parent
BASE_URL = "http://testserver"

DEBUG = False
SECRET_KEY = "not-a-secret-only-for-the-tests-of-this-project"
ALLOWED_HOSTS = ["testserver", "127.0.0.1", "localhost"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "oauth2_provider",
    "rest_framework",
    "mcp_django",
    "tests.testapp",
    "tests.inlineapp",
    "tests.oddapp",
    "tests.fieldapp",
    "tests.fileapp",
    "tests.filterapp",
    "tests.restapp",
    "tests.sitesapp",
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

ROOT_URLCONF = "tests.urls"
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

# A file, as worker threads open connections of their own; conftest.py gives each run its own one.
DATABASES = {"default": database_from(os.environ.get("TEST_DATABASE_URL") or str(BASE_DIR / "db.sqlite3"))}
if DATABASES["default"]["ENGINE"].endswith("postgresql"):
    INSTALLED_APPS += ["django.contrib.postgres", "tests.postgresapp"]
# Worker threads outlive the tests, and must not hold on to their database.
DATABASES["default"]["CONN_MAX_AGE"] = 0
MIGRATION_MODULES = UNMIGRATED
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
MEDIA_URL = "media/"

MCP_DJANGO = {"BASE_URL": BASE_URL}
OAUTH2_PROVIDER = provider_settings(base_url=BASE_URL)
