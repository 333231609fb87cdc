"""Settings of a project whose middleware puts a role on the user and the request, with a user model of its own.

Its admin reads what the middleware sets, and the session of the browser. Tables are made without migrations.
"""

from tests.settings import *  # noqa: F403
from tests.settings import MIDDLEWARE

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
    "tests.roles_project.crm",
]
AUTH_USER_MODEL = "crm.Account"
ROOT_URLCONF = "tests.urls"
ROLES = "tests.roles_project.crm.middleware.RoleMiddleware"
DEPARTMENT = "tests.roles_project.crm.middleware.department"
MIDDLEWARE = [*MIDDLEWARE, ROLES, DEPARTMENT]
