"""Published formats: JSON schemas and test vectors, as data."""
