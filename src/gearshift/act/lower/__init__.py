"""One lowering per knob that needs one: how what was decided becomes something that runs.

Must not know why it was decided.
"""
