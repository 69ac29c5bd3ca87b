"""Policies that learn: one algorithm, one file, in numpy, so that they learn where they decide.

Must not know torch; agents are trained in the simulator and go on learning while they serve.
"""
