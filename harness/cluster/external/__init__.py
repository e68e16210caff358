"""External clusters: clusters that the harness did not start.

They have the interface of the harness's clusters.
"""
