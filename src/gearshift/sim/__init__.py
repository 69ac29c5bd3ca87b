"""Machines, neighbours and regions that are only computed: what agents are trained in.

Must not know a running model; what regions take here was recorded from real ones.
"""
