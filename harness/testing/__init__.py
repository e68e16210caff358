"""The pytest plugin: a cluster that all tests of a session share, and a fixture that runs scenarios."""
