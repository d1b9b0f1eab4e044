"""The formats of the catalog, one migration each."""
