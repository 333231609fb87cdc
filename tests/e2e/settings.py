"""The example project as it is, but for what is slow: the hashes of passwords, and the migrations of other apps."""

from example_project.settings import *  # noqa: F403
from tests.tables import UNMIGRATED

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MIGRATION_MODULES = UNMIGRATED
