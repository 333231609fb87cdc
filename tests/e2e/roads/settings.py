from example_project.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "tests.e2e.roads"]
