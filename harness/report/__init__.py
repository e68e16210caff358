"""What is shown of a run; listeners of its events, which the run does not know."""
