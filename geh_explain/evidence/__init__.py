"""The held-out test: do labels that training never used support the interactions of a network?"""
