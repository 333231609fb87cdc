from django.apps import AppConfig


class TestAppConfig(AppConfig):
    name = "tests.testapp"
