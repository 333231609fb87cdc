from django.apps import AppConfig


class SitesAppConfig(AppConfig):
    name = "tests.sitesapp"
