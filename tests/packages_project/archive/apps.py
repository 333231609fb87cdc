from django.apps import AppConfig


class ArchiveConfig(AppConfig):
    name = "tests.packages_project.archive"
    default_auto_field = "django.db.models.BigAutoField"
