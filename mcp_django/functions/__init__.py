"""Functions of the project: their signatures as schemas, what they ask for, how far they are."""
