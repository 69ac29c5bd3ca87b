"""What exists: graph, regions of it, topology, measurement. Pure data.

Must not know torch, numpy, a clock or a file.
"""
