"""The example project below a path, in a time zone and a language that its middleware chose."""
