"""Damage at random, for tests of what is read from files."""

import random


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Change a few bytes, cut a piece out, or repeat one."""
    data = bytearray(content)
    kind = chance.randrange(4)
    at = chance.randrange(len(data))
    length = chance.choice((1, 1, 4, 64, len(data) // 3))
    if kind == 0:
        for _ in range(chance.choice((1, 3, 20))):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 1:
        del data[at : at + length]
    elif kind == 2:
        data[at:at] = data[at : at + length]
    else:
        data[at : at + length] = chance.randbytes(min(length, len(data) - at))
    return bytes(data)
