"""Jars, Toxiproxy and container images: each is fetched or built once, verified and cached."""
