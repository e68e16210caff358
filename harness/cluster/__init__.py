"""Three brokers, three controllers and Toxiproxy, under one interface whatever runs them."""
