"""Spark jobs that read topics into observations. They use a given session and never configure Spark."""
