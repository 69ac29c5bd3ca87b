"""What happened, for people to look at: a page, a trace, a terminal.

Must not know how anything came about: draws a `Story`, which is plain data.
"""
