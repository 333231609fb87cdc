"""The console: pages of the admin for those who run a site."""
