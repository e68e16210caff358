"""Spark jobs that read topics into observations; functions of a session that never configure Spark."""
