from django.apps import AppConfig


class PostgresAppConfig(AppConfig):
    name = "tests.postgresapp"
