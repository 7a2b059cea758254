"""Tuned scalars in a scenario file, of which everything else stays as it is."""

import os
import stat
from pathlib import Path

import pytest

from collapipe_env.ground.errors import ScenarioError
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.section_writing import (
    require_replaceable,
    section_lines,
    with_section,
    write_scalars,
)

NEW = ["dssra_plus:", "  # how", "  migration_weight: 0.25"]
OLD_FORMS = {
    "absent": ("name: a\n", "name: a\n\n", ""),
    "empty line at the end": ("name: a\n\n", "name: a\n\n", ""),
    "no line end": ("name: a", "name: a\n\n", ""),
    "first": ("dssra_plus:\n  heat_price: 1\nname: a\n", "", "name: a\n"),
    "between": (
        "# top\nname: a  # why\ndssra_plus:  # old\n  # older\n\n  heat_price: 1\n\n# of b\nradio: {}\n",
        "# top\nname: a  # why\n",
        "\n# of b\nradio: {}\n",
    ),
    "over two lines": (
        "name: a\ndssra_plus: {heat_price: 1,\n heat_start: 0}  # old\n# b\n",
        "name: a\n",
        "# b\n",
    ),
    "quoted": ("name: a\n'dssra_plus':\n    'heat_price': 1\nradio: {}\n", "name: a\n", "radio: {}\n"),
    "last": ("name: a\ndssra_plus: {heat_price: 1}\n", "name: a\n", ""),
    "another name": ("dssra_plus_more:\n  x: 1\n", "dssra_plus_more:\n  x: 1\n\n", ""),
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("form", list(OLD_FORMS))
def test_only_the_section_changes_and_line_ends_stay(form: str, end: str) -> None:
    text, before, after = (part.replace("\n", end) for part in OLD_FORMS[form])
    if "\n" not in text:
        before, end = before.replace(end, "\n"), "\n"
    section = "".join(f"{line}{end}" for line in NEW)
    found = with_section(text, NEW)
    assert found == before + section + after
    assert with_section(found, NEW) == found


def test_the_lines_of_the_section() -> None:
    assert section_lines({"migration_weight": 0.25}, ["how"]) == NEW
    assert section_lines({"heat_price": 1e-05}, []) == ["dssra_plus:", "  heat_price: 1e-05"]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("# mine\nbase: small\ndssra_plus:\n  heat_price: 3.0\n# radio\nradio:\n  diversity: 2\n")
    scenario = load_scenario(file)
    write_scalars(
        file, scenario, {"migration_weight": 0.25, "heat_start": 1e-05}, ["collapipe tune mine.yaml"]
    )
    assert file.read_text() == (
        "# mine\nbase: small\ndssra_plus:\n  # collapipe tune mine.yaml\n  migration_weight: 0.25\n"
        "  heat_start: 1e-05\n# radio\nradio:\n  diversity: 2\n"
    )
    wanted = {"dssra_plus": {"migration_weight": 0.25, "heat_price": 0.0, "heat_start": 1e-5}}
    assert load_scenario(file) == scenario.with_overrides(wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_files_that_cannot_be_written_into(tmp_path: Path) -> None:
    scenario = load_scenario("small")
    texts = {
        "other.yaml": ("base: medium\n", "is not the scenario 'small' that is tuned"),
        "flow.yaml": ("{base: small}\n", "cannot be replaced"),
        "mine.txt": ("base: small\n", "must end in .yaml or .yml"),
    }
    for name, (text, message) in texts.items():
        file = tmp_path / name
        file.write_text(text)
        with pytest.raises(ScenarioError, match=message):
            write_scalars(file, scenario, {"migration_weight": 0.5})
        with pytest.raises(ScenarioError, match=message):
            require_replaceable(file, scenario, ["migration_weight"])
        assert file.read_text() == text
    with pytest.raises(ScenarioError, match=r"cannot be read: No such file or directory"):
        write_scalars(tmp_path / "none.yaml", scenario, {"migration_weight": 0.5})
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    with pytest.raises(ScenarioError, match="not UTF-8 text"):
        write_scalars(tmp_path / "latin.yaml", scenario, {"migration_weight": 0.5})


def test_lines_that_end_otherwise_stay_as_they_are() -> None:
    # A single line of another kind is not made like the rest.
    text = "# a\r\nname: a\r\nradio: {}\ncluster: {}"
    assert with_section(text, ["dssra_plus: {}"]) == text + "\r\n\r\ndssra_plus: {}\r\n"


def test_the_files_mode_stays(tmp_path: Path) -> None:
    for mode in (0o600, 0o664, 0o444):
        file = tmp_path / f"{mode:o}.yaml"
        file.write_bytes(b"base: small\r\n# end\r\n")
        file.chmod(mode)
        write_scalars(file, load_scenario(file), {"migration_weight": 0.25})
        assert stat.S_IMODE(file.stat().st_mode) == mode
        assert file.read_bytes().startswith(b"base: small\r\n# end\r\n\r\ndssra_plus:\r\n")
        assert load_scenario(file).dssra_plus.migration_weight == 0.25


def test_a_folder_that_cannot_be_written_to_is_told_of_first(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("base: small\n")
    require_replaceable(file, load_scenario(file), ["migration_weight"])
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path.resolve(), os.W_OK))
    with pytest.raises(ScenarioError, match="is not writable: leave out --write"):
        require_replaceable(file, load_scenario(file), ["migration_weight"])
