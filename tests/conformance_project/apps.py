from django.apps import AppConfig


class ConformanceConfig(AppConfig):
    name = "tests.conformance_project"
    label = "conformance"
