"""Who decides, and who has the last word.

Must not know how a plan is carried out; torch is not loaded here.
"""
