"""Functions of the project: their signatures as schemas, the parameters that they ask for, and their progress."""
