from django.apps import AppConfig


class RestAppConfig(AppConfig):
    name = "tests.restapp"
