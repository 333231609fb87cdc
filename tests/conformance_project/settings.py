"""Settings of the conformance project: open to anyone on this machine, with nothing in it worth a login."""

from typing import Any

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
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "tests.conformance_project.urls"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
USE_TZ = True

MCP_DJANGO: dict[str, Any] = {
    "AUTHENTICATION_CLASSES": [],
    "SERVER_NAME": "mcp-django-conformance",
    # The suite calls faster than a person's client.
    "CALL_RATE": None,
}
