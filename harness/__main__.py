"""`python -m harness` is the `eos` command."""

from harness.cli.main import main

main()
