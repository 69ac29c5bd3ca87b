"""Recurrent layers chunk by chunk: cells, the kernels that compute them, and ways through a
sequence.

Must not know plans' legality or when something is built.
"""
