"""What the harness needs and does not ship: jars, Toxiproxy, images; fetched once, verified, cached."""
