"""Models and admins of the kinds that other people's packages bring: values with classes, pages that scripts build."""
