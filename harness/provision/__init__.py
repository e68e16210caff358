"""Provide jars, Toxiproxy and container images: fetched or built once, verified, cached."""
