from .base import *  # noqa: F403

DEBUG = True
SECRET_KEY = "for development alone"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}  # noqa: F405
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = BASE_DIR / "mails"  # noqa: F405
CELERY_TASK_ALWAYS_EAGER = True
