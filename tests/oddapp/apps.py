from django.apps import AppConfig


class OddAppConfig(AppConfig):
    name = "tests.oddapp"
    default_auto_field = "django.db.models.BigAutoField"
