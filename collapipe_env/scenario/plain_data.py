"""Plain data of scenarios: read from YAML, made from objects, checked by a class, and written again."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from collapipe_env.ground.errors import LARGEST_BITS, ScenarioError, shortened, shown
from collapipe_env.ground.files import read_regular
from collapipe_env.scenario.validation_errors import fault_text

T = TypeVar("T")

YAML_SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 1_000_000
"""Largest size of a scenario file [byte]."""
MAX_MARKS = 20_000
"""Largest number of lines, commas and opening brackets of a scenario file; parsing time grows with them."""
MAX_NODES = 100_000
"""Largest number of sections, lists and values of a mapping."""
MAX_BRACKETS = 100
"""Largest number of brackets open at once in a scenario file."""
MAX_DEPTH = 12
"""Largest depth of nested sections and lists."""
_MARKS = "\n\r,[{"


def scenario_text(path: Path) -> str:
    """Return the text of a scenario file.

    Raises:
        ScenarioError: If the file is not one of UTF-8 text that ends in ``.yaml`` or ``.yml``, or cannot be
            read.
    """
    source = f"scenario file {path}"
    if path.suffix not in YAML_SUFFIXES:
        raise ScenarioError(f"{source}: the name must end in .yaml or .yml, not in {path.suffix!r}")
    try:
        content = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise ScenarioError(f"{source}: cannot be read: {error.strerror}") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ScenarioError(f"{source}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def parse(text: str, source: str) -> dict[str, Any]:
    """Parse YAML 1.2 safely: no tags, no duplicate keys, a mapping on top."""
    _require_quick(text, source)
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Constructor = _Constructor
        data = yaml.load(text)
    except MarkedYAMLError as error:
        start = f" (begun in line {error.context_mark.line + 1})" if error.context_mark is not None else ""
        context = f"{error.context}{start}: " if error.context else ""
        raise ScenarioError(f"{source}{line_of(error)}: {_one_line(f'{context}{error.problem}')}") from None
    except YAMLError as error:
        position = getattr(error, "position", None)
        line = f", line {text[:position].count(chr(10)) + 1}" if isinstance(position, int) else ""
        raise ScenarioError(f"{source}{line}: {_one_line(str(error))}") from None
    # An impossible number or nesting, or a tag such as !!bool on another value.
    except (ValueError, RecursionError, KeyError) as error:
        raise ScenarioError(f"{source}: cannot be parsed as a scenario: {_one_line(str(error))}") from None
    if data is None:
        raise ScenarioError(f"{source}, line 1: the file is empty; a scenario is a mapping of sections")
    if not isinstance(data, Mapping):
        raise ScenarioError(
            f"{source}, line 1: a scenario is a mapping of sections such as 'radio:', "
            f"not a {type(data).__name__}"
        )
    return plain_data(data, source)


class _Constructor(SafeConstructor):
    """YAML constructor whose error names the line of an integer with more digits than Python reads."""

    def construct_yaml_int(self, node: Any) -> int:
        try:
            return int(super().construct_yaml_int(node))
        except ValueError:
            if len(node.value) <= LARGEST_BITS:
                raise  # no integer at all
            problem = f"an integer of {len(node.value):,} characters is more than any field takes"
            raise ConstructorError(problem=problem, problem_mark=node.start_mark) from None


_Constructor.add_constructor("tag:yaml.org,2002:int", _Constructor.construct_yaml_int)


def open_brackets(text: str) -> Iterator[tuple[int, int]]:
    """Yield each bracket's position and the number of brackets open after it, including those in comments.

    The time of parsing grows with the square of that number.
    """
    depth = 0
    for bracket in re.finditer(r"[\[{\]}]", text):
        depth = depth + 1 if bracket[0] in "[{" else max(0, depth - 1)
        yield bracket.start(), depth


def line_of(error: MarkedYAMLError) -> str:
    """Return ``, line 3`` for an error in the third line; nothing if the error names no place."""
    mark = error.problem_mark or error.context_mark
    return f", line {mark.line + 1}" if mark is not None else ""


def _require_quick(text: str, source: str) -> None:
    """Refuse YAML that takes long to parse; the time also grows with the square of the nesting."""
    marks = sum(text.count(mark) for mark in _MARKS)
    if marks > MAX_MARKS:
        raise ScenarioError(
            f"{source}: {marks:,} lines, commas and brackets, above the limit of {MAX_MARKS:,}; is this a "
            "scenario?"
        )
    for position, depth in open_brackets(text):
        if depth > MAX_BRACKETS:
            line = text.count("\n", 0, position) + 1
            raise ScenarioError(
                f"{source}, line {line}: nested too deeply for a scenario: {depth} open brackets"
            )


def _one_line(text: str) -> str:
    return shortened(" ".join(text.split()))


def plain_data(data: Mapping[Any, Any], source: str) -> dict[str, Any]:
    """Copy nested mappings and lists into dicts and lists; refuse anything that cannot be a scenario.

    The copy breaks shared references, so a file with recursive or exploding aliases must be stopped here.
    """
    left = MAX_NODES

    def copy_of(value: object, path: str, depth: int) -> Any:
        nonlocal left
        left -= 1
        if depth > MAX_DEPTH or left < 0:
            raise ScenarioError(
                f"{source}: {shortened(path) or 'the top level'}: nested too deeply or too large for a "
                f"scenario, which has at most {MAX_DEPTH} levels and {MAX_NODES:,} entries"
            )
        if isinstance(value, np.generic):
            value = value.item()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            # A section in a mapping.
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, int) and value.bit_length() > LARGEST_BITS:
            raise ScenarioError(f"{source}: {shortened(path)}: {shown(value)} is more than any field takes")
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    raise ScenarioError(
                        f"{source}: {shortened(path) or 'top level'}: field names are text, not {shown(key)}"
                    )
            return {key: copy_of(item, f"{path}.{key}".lstrip("."), depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copy_of(item, f"{path}.{index}", depth + 1) for index, item in enumerate(value)]
        return value

    plain: dict[str, Any] = copy_of(data, "", 0)
    return plain


def plain_yaml(data: Mapping[str, Any]) -> str:
    """Return plain data, such as sections of a scenario file, as YAML text in the same order."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment] # keep the fields' order
    text = io.StringIO()
    yaml.dump(dict(data), text)
    return text.getvalue()


adapter: Callable[..., TypeAdapter[Any]] = lru_cache(maxsize=128)(TypeAdapter)
"""Validator of a dataclass; building it takes far longer than using it."""


def validated(kind: type[T], data: Mapping[str, Any], source: str) -> T:
    """Build a dataclass from plain data; errors name its source.

    Raises:
        ScenarioError: With one line per fault: dotted path, offending value, allowed values.
    """
    try:
        built: T = adapter(kind).validate_python(data)
    except ValidationError as error:
        raise ScenarioError(fault_text(error, kind, data, source)) from None
    return built


def dumped(value: Any) -> dict[str, Any]:
    """Return a dataclass as plain data."""
    try:
        plain: dict[str, Any] = adapter(type(value)).dump_python(value, mode="json")
    except PydanticSerializationError as error:
        # Pydantic wraps anything that the fields' serializers raise, even a Ctrl-C at that moment.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
    return plain
