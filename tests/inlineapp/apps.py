from django.apps import AppConfig


class InlineAppConfig(AppConfig):
    name = "tests.inlineapp"
    default_auto_field = "django.db.models.BigAutoField"
