"""Arrays of records, whatever holds them."""

import dataclasses
from collections.abc import Mapping


def leaves(value, name=""):
    """Every array of a record, by dotted name."""
    if hasattr(value, "dtype"):
        yield name, value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{name}.{field.name}")
    elif hasattr(value, "_asdict") or isinstance(value, Mapping):
        for key, part in (value if isinstance(value, Mapping) else value._asdict()).items():
            yield from leaves(part, f"{name}.{key}")
