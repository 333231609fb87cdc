"""The example project as it is, but for passwords, whose hashes are slow on purpose."""

from example_project.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
