"""What a plan would cost: measured where it was measured, else worked out from what was.

Must not know how plans are run or who chooses between them.
"""
