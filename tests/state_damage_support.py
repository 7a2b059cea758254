"""Random single damages of states, for tests that set them."""

import copy

import numpy as np
import safetensors.numpy

from collapipe_env.ground import state_files

OTHERS = [
    None,
    True,
    5,
    -1,
    2**200,
    1.5,
    float("nan"),
    "text",
    "9" * 5000,
    "\u0663",
    [1],
    {},
    {"0": {}},
    {5: np.zeros(1)},
    np.zeros(0),
    np.zeros((2, 2)),
    np.array("text"),
    np.array([None, {}]),
]
NUMBERS = [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-300, 1e300, 1e40, 7.0, 1e9]
WHOLE = [-1, 0, 1, 7, 10**9, 2**62, -(2**62), 255]


def changed(tree, place, value):
    """A copy with one place changed, or taken out where the value is ``...``."""
    tree = copy.deepcopy(tree)
    *path, last = place.split("/")
    part = tree
    for name in path:
        part = part[name]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return tree


def places(tree, path=()):
    """All places of a tree, inner ones too."""
    for name, value in tree.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from places(value, (*path, name))


def damaged(rng, tree):
    """A copy of a tree with one random damage, and words for it."""
    tree = copy.deepcopy(tree)
    found = list(places(tree))
    path = found[rng.integers(len(found))]
    part = tree
    for name in path[:-1]:
        part = part[name]
    name, value = path[-1], part[path[-1]]
    kind = rng.integers(10)
    if kind == 0:
        del part[name]
        what = "removed"
    elif kind == 1:
        part[f"{name}x"] = part.pop(name)
        what = "renamed"
    elif kind == 2:
        part[["more", "1", 7][rng.integers(3)]] = copy.deepcopy(value)
        what = "another beside it"
    elif kind <= 4 or isinstance(value, dict | bool | None):
        part[name] = copy.deepcopy(OTHERS[rng.integers(len(OTHERS))])
        what = f"replaced by {str(part[name])[:30]}"
    elif isinstance(value, np.ndarray):
        part[name], what = damaged_array(rng, value)
    elif isinstance(value, int):
        part[name] = [value + 1, -value - 1, 10**12, 2**100, float(value)][rng.integers(5)]
        what = f"now {part[name]}"
    else:
        part[name] = [value + "1", value[:-1], "-" + value, value.upper(), value * 10_000][rng.integers(5)]
        what = f"now {part[name][:30]}"
    return tree, f"{'/'.join(map(str, path))}: {what}"


def damaged_array(rng, array):
    """The array with one number, its type or its shape changed."""
    kind = rng.integers(8)
    if kind == 0:
        with np.errstate(invalid="ignore", over="ignore"):
            return array.astype([np.float32, np.int32, np.uint64, bool, complex][rng.integers(5)]), "type"
    if kind == 1 or not array.size:
        return array[None], "shape"
    if kind == 2:
        return np.concatenate((array.ravel(), array.ravel())), "length"
    spoilt = array.copy()
    place = int(rng.integers(array.size))
    if array.dtype == bool:
        spoilt.flat[place] ^= True
        return spoilt, "flipped"
    value = NUMBERS[rng.integers(len(NUMBERS))]
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        value = min(max(WHOLE[rng.integers(len(WHOLE))], limits.min), limits.max)
    with np.errstate(over="ignore"):
        spoilt.flat[slice(None) if kind == 3 else place] = value
    return spoilt, f"{'all' if kind == 3 else 'one'} {value}"


def damaged_bytes(rng, content):
    """The bytes of a file with one damage, and words for it."""
    kind, place = rng.integers(6), int(rng.integers(len(content)))
    some = rng.bytes(int(rng.integers(1, 9)))
    if kind == 0:
        return content[:place], f"cut at {place}"
    if kind == 1:
        return content[:place] + some + content[place:], f"{some} put in at {place}"
    if kind == 2:
        return content[:place] + content[place + len(some) :], f"{len(some)} bytes out at {place}"
    if kind == 3:
        return content[:place] + some + content[place + len(some) :], f"{some} at {place}"
    return with_text(content, lambda text: damaged_text(rng, text)), "text"


def damaged_text(rng, text):
    """The text with some of it left out, put elsewhere, or changed; the file around it stays intact."""
    first, last = sorted(int(i) for i in rng.integers(0, len(text), 2))
    last = min(last, first + 20)
    new = ["", "[1]", "{}", "null", "-1", '"', "NaN", "1e999", "9" * 400, text[last : last + 10]]
    return text[:first] + new[rng.integers(len(new))] + text[last:]


def with_text(content, change):
    """A state's file whose text is changed, with a sum that is right again."""
    arrays = safetensors.numpy.load(content)
    text = change(arrays[state_files.TEXT].tobytes().decode())
    return state_of({**arrays, state_files.TEXT: as_bytes(text)})


def state_of(arrays):
    """The content of a state's file of these arrays; the text is one of them."""
    arrays = {name: array for name, array in arrays.items() if name != state_files.SUM}
    return safetensors.numpy.save({**arrays, state_files.SUM: state_files._sum(arrays)})


def as_bytes(text):
    """A text as the state files hold it."""
    return np.frombuffer(text.encode(), dtype=np.uint8)
