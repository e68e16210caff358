"""The harness's own clients, one operating-system process each, and the settings they run with."""
