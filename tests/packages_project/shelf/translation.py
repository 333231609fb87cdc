from modeltranslation.translator import TranslationOptions, register

from tests.packages_project.shelf.models import News


@register(News)
class NewsTranslation(TranslationOptions):
    fields = ["title", "body"]
