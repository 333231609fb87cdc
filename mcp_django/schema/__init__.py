"""Function signatures, forms and return types as JSON Schema, and validation by the same code.

Input schemas are flat objects without ``$ref``, ``format`` or combinators at the top. They repeat each constraint in
words, because clients drop keywords that they do not know. Output schemas promise nothing that data could break.
"""
