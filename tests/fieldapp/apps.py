from django.apps import AppConfig


class FieldAppConfig(AppConfig):
    name = "tests.fieldapp"
