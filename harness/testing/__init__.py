"""The pytest plugin: a cluster shared by a session, and scenarios as tests."""
