"""Policies that learn: one algorithm, one file; all decide in numpy, wherever they are needed.

Must not know torch, but for `ppo.py` when it learns, which loads it then; agents are trained in the
simulator and go on learning while they serve.
"""
