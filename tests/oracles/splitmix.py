"""SplitMix64, the published function behind all uniform numbers, in Python's own integers."""

MASK = 2**64 - 1


def splitmix(word):
    z = word * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31
