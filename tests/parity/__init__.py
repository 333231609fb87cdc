"""The same thing done twice, in the admin's pages and through the endpoint, to compare what came of it."""
