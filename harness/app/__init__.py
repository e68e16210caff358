"""The application under test: its specification, its processes, and their supervision."""
