from django.apps import AppConfig


class FileAppConfig(AppConfig):
    name = "tests.fileapp"
    default_auto_field = "django.db.models.BigAutoField"
