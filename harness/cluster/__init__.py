"""Nodes, links, topics and targets of a cluster, with one interface for every back end."""
