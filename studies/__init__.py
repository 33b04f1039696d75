"""The paper's experiments, as functions; the command line calls them."""
