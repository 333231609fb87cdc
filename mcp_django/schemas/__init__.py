"""Function signatures, forms and return types as JSON Schema, and validation by the same code.

Input schemas are flat objects without ``$ref``, ``format`` or combinators at the top, and say each constraint in words
too: clients drop keywords that they do not know. Output schemas promise nothing that data could break.
"""

from .annotations import Header, Param
from .arguments import ArgumentSchema, raw_schema, signature_schema
from .asking import Ask, Roots, Sample
from .functions import ProjectFunction
from .jsonable import to_jsonable
from .output import output_schema

__all__ = [
    "ArgumentSchema",
    "Ask",
    "Header",
    "Param",
    "ProjectFunction",
    "Roots",
    "Sample",
    "output_schema",
    "raw_schema",
    "signature_schema",
    "to_jsonable",
]
