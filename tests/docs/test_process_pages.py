"""Pages about what moves: examples with the defaults, tables of all fields, numbers, terms and formats."""

import dataclasses
import math
import re

import pages_support as support
import pytest
from pages_support import text_of
from ruamel.yaml import YAML

from collapipe_env.dynamics.channel_knowledge import ChannelKnowledgeSpec
from collapipe_env.dynamics.heat_spec import PROFILES, HeatSpec, heat_numbers
from collapipe_env.dynamics.mobility import MobilitySpec
from collapipe_env.dynamics.trace_like import PROFILES as TRACES
from collapipe_env.dynamics.traces_spec import TracesSpec
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.device_catalogue import catalogue
from collapipe_env.scenario.server_section import TERMS
from collapipe_env.trace_files.trace_formats import FORMATS
from collapipe_env.trace_files.trace_reading import known_formats

SPECS = {"channel_knowledge": ChannelKnowledgeSpec(), "mobility": MobilitySpec(), "traces": TracesSpec()}
"""Process of each page whose table has a row for every field."""
UNIT = r" (s|m|m/s|dBm|dB|Hz|Mbit/s)$"


def written(value):
    """A default as pages write it."""
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value).removesuffix(".0") or "(empty)"


@pytest.mark.parametrize("name", [*SPECS, "heat"])
def test_the_first_example_has_the_defaults(name):
    (first, *_) = (text for language, text in support.code(support.DOCS / f"{name}.md") if language == "yaml")
    processes = dict(load_scenario(YAML(typ="safe", pure=True).load(first)).dynamics.processes)
    assert processes[name] == SPECS.get(name, HeatSpec())


@pytest.mark.parametrize("name", SPECS)
def test_the_table_of_fields_says_all_of_them_with_their_defaults(name):
    said, spec = {}, SPECS[name]
    for names, cell in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+?) \|", text_of(name), re.MULTILINE):
        fields, value = re.findall(r"\w+", names), re.sub(UNIT, "", cell).strip("`")
        said |= zip(fields, value.split(", ") if len(fields) > 1 else [value], strict=False)
    for field in dataclasses.fields(spec):
        assert said[field.name] == written(getattr(spec, field.name)), field.name


def test_the_page_says_the_numbers_of_heat():
    table = text_of("heat").partition("## Numbers")[2].partition("\n## ")[0]
    found = {names: cells.split(" | ") for names, cells in re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.M)}
    for column, profile in enumerate(PROFILES):
        numbers = heat_numbers(HeatSpec(profile=profile))._asdict()
        seen = set()
        for names, cells in found.items():
            fields = re.findall(r"`(\w+)`", names)
            said = [float(value) for value in cells[column].split(", ")]
            own = numbers[fields[0]] if fields == ["levels"] else [numbers[name] for name in fields]
            assert said == pytest.approx(list(own), abs=0.04 if "sustainable_w" in fields else 0.0)
            seen |= set(fields)
        assert seen == set(numbers)


@pytest.mark.parametrize("name", TERMS)
def test_the_page_says_the_terms_of_the_server(name):
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", text_of("server"), re.MULTILINE)
    tenants, speed, memory, budget = row.split(" | ")
    values = TERMS[name]
    assert values.tenants == 0.0
    assert tenants == ("come and go: .2, .6 or .9 of it" if values.chain else "none")
    assert speed == ("`cluster.server_flops`" if values.flops is None else f"{values.flops / 1e12:g} TFLOP/s")
    assert memory == ("no limit" if values.memory_bytes is None else f"{values.memory_bytes / 1e9:g} GB")
    j = values.energy_budget_j
    assert budget == ("none" if j is None else f"{j:g} J a round")


def test_all_formats_and_profiles_of_traces_are_described():
    for name in known_formats():
        assert f"`{name}`" in text_of("traces")
    for name, layout in FORMATS.items():
        (row,) = re.findall(rf"^\| `{name}` \| (.*)$", text_of("traces"), re.MULTILINE)
        for column in layout.columns.values():
            assert column in row or layout.header
    table = text_of("traces").partition("<!-- generated: profiles -->")[2].partition("<!-- end")[0]
    for name, profile in TRACES.items():
        (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", table, re.MULTILINE)
        assert f"{profile.mean_db:.1f} dB" in row
        parts = list(zip(profile.weights, profile.times_s, strict=True))
        rho = [sum(w * math.exp(-lag / t) for w, t in parts) for lag in (1, 10, 60)]
        assert row.endswith(", ".join(f"{one:.2f}" for one in rho))


@pytest.mark.parametrize("name", catalogue())
def test_the_page_says_the_devices_of_the_catalogue_and_their_sources(name):
    found, lines = catalogue()[name], text_of("devices").splitlines()
    numbers = (
        f"{found.clock_hz / 1e9:g} | {found.peak_flops / 1e9:g} | {100 * found.efficiency:g} % | "
        f"{found.flops / 1e9:g} | {found.active_power_w:g} | {found.memory_bytes / 1e9:g}"
    )
    assert f"| `{name}` | {found.title} | {numbers} |" in lines
    for field, source in found.sources.items():
        said = re.sub(r" (https?://\S+)$", r" ([source](\1))", source)
        assert f"| `{name}` | `{field}` | {said} |" in lines
