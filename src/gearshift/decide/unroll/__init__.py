"""Who chooses how many steps a recurrent layer takes at a time: what is seen of it, what may be
chosen, who chooses.
"""
