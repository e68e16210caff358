"""Walkthroughs: each shows a protocol step by step on a real cluster, with evidence for every claim."""
