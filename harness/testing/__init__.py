"""The harness in pytest: one plugin that offers a shared cluster and runs scenarios as tests."""
