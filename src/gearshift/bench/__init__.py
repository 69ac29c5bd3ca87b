"""Benchmarks, each a function that returns one JSON document; `gearshift bench NAME` runs them.

Must not be imported by anything but the command line.
"""
