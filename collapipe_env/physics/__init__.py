"""The physics: pure functions over arrays with leading batch axes, one idea a file.

Every function takes arrays of any library of the Python array API standard, with leading batch axes ``...``
before the documented ones. It uses no global state and no clock, and is independent of reinforcement
learning. Units are SI (seconds, joules, watts, hertz, bits, bytes, FLOPs, metres).
"""
