"""Carries plans out: engines, backends, compiling, verifying, and the hot path of a call.

Must not know why a plan was chosen.
"""
