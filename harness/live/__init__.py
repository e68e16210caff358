"""A run on somebody else's cluster: what is asked before, who watches meanwhile, what is left after."""
