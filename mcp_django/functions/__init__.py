"""Functions of the project: their declarations and calls, the parameters that they ask for, and their progress."""
