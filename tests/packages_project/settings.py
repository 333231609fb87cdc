"""Settings of a project full of other people's admins, all of them as their packages ship them.

Its own app, `shelf`, uses them as projects do; `archive` has a database, an admin and an endpoint to itself. Tables
are made without migrations, which are the packages' own affair.
"""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from tests.settings import *  # noqa: F403
from tests.settings import BASE_DIR, MIDDLEWARE, TEMPLATES

# Two distributions have a module of this name: python-crontab, which django-celery-beat needs, and crontab, which the
# scheduler of RQ needs and which hides the other one.
_crontab = importlib.metadata.distribution("crontab").locate_file("crontab.py")
if Path(str(_crontab)).exists():
    _spec = importlib.util.spec_from_file_location("crontab", str(_crontab))
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["crontab"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["crontab"])

# A release of Django is not supported by all of them from its first day on.
OPTIONAL = [name for name in ["django_celery_beat"] if importlib.util.find_spec(name)]

INSTALLED_APPS = [
    # These two replace admin classes or templates, and stand before what they replace.
    "modeltranslation",
    "polymorphic",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.sites",
    "django.contrib.flatpages",
    "django.contrib.redirects",
    "channels",
    "oauth2_provider",
    "rest_framework",
    "mcp_django",
    "adminsortable2",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.github",
    "allauth.usersessions",
    "axes",
    "constance",
    "django_otp",
    "django_otp.plugins.otp_email",
    "django_otp.plugins.otp_hotp",
    "django_otp.plugins.otp_static",
    "django_otp.plugins.otp_totp",
    "easy_thumbnails",
    "filer",
    "guardian",
    "import_export",
    "mptt",
    "parler",
    "reversion",
    "simple_history",
    "solo",
    "taggit",
    "treebeard",
    "waffle",
    *OPTIONAL,
    "tests.packages_project.archive",
    "tests.packages_project.shelf",
]

MIDDLEWARE = [
    *MIDDLEWARE,
    "allauth.account.middleware.AccountMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
    "waffle.middleware.WaffleMiddleware",
    "axes.middleware.AxesMiddleware",
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    "guardian.backends.ObjectPermissionBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]

ROOT_URLCONF = "tests.packages_project.urls"
SITE_ID = 1
DATABASES = {
    "default": {**DATABASES["default"]},  # noqa: F405
    "archive": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
DATABASE_ROUTERS = ["tests.packages_project.archive.routers.ArchiveRouter"]
MEDIA_ROOT = BASE_DIR / "media"
STATIC_ROOT = BASE_DIR / "static"
TEMPLATES = TEMPLATES
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
USE_I18N = True

ACCOUNT_EMAIL_CONFIRMATION_HMAC = False
AXES_IPWARE_PROXY_COUNT = 0
CONSTANCE_BACKEND = "constance.backends.memory.MemoryBackend"
CONSTANCE_CONFIG = {"GREETING": ("Hello", "What visitors are told"), "LIMIT": (5, "How many")}
MODELTRANSLATION_LANGUAGES = ("en", "de")
PARLER_LANGUAGES = {1: ({"code": "en"}, {"code": "de"}), "default": {"fallbacks": ["en"]}}
SOCIALACCOUNT_STORE_TOKENS = True
FILER_ENABLE_PERMISSIONS = True
