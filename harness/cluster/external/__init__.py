"""External clusters: clusters that the harness did not start.

The class ExternalCluster has the same interface as Cluster, which is a cluster that the harness started.
"""
