"""Choosing a region's split: what there is to choose, what is seen, what it earns.

Must not know who chooses: plain rules, a bandit or a network.
"""
