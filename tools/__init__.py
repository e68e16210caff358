"""Commands for developers of the harness: benchmarks, mutation tests and a check of the texts.

They are not part of the wheel.
"""
