"""One script per format, named by its number; a released script is never changed."""
