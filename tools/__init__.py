"""Commands for developers of the harness: benchmarks, mutation tests, and a check for unclear phrases.

They are not part of the wheel.
"""
