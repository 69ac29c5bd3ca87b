"""Where regions begin and end while a model serves: divided where they fall short, merged where
their boundaries cost too much.

Must not know how a region is run or measured.
"""
