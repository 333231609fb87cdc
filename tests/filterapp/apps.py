from django.apps import AppConfig


class FilterAppConfig(AppConfig):
    name = "tests.filterapp"
