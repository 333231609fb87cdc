from django.apps import AppConfig


class StoreConfig(AppConfig):
    name = "tests.databases_project.store"
