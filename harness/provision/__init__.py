"""Supply of jars, Toxiproxy and container images. Each is fetched or built once, verified and cached."""
