from django.apps import AppConfig


class PlacesConfig(AppConfig):
    name = "example_project.places"
    label = "places"
