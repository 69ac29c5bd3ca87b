"""What is measured while the model runs: the machine, the calls, and what is kept of both.

Must not know what is decided from it.
"""
