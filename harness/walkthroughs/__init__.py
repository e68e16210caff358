"""Protocols shown step by step on a real cluster: each step makes claims and collects evidence for them."""
