"""Made-up data for the shop: the same for the same arguments, in bounded memory for any number of orders."""
