from django.apps import AppConfig


class ShelfConfig(AppConfig):
    name = "tests.packages_project.shelf"
    default_auto_field = "django.db.models.BigAutoField"
