"""Pictures and tables of finished runs for papers: formats, sizes, and the numbers of the run."""

import json
import re
from pathlib import Path

import pytest
from matplotlib import pyplot
from view_support import compared

from collapipe_env import evaluate, plots
from collapipe_env.cli.main import main
from collapipe_env.ground.errors import DataError

STARTS = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A tiny comparison on two scenarios, one of which has an awkward name."""
    return compared(tmp_path_factory.mktemp("run"))


def test_formats_are_what_their_names_say_and_the_same_again(run: Path, tmp_path: Path) -> None:
    for kind, start in STARTS.items():
        drawn = [
            plots.draw(run, tmp_path / folder, names=["delay"], format=kind)[0].read_bytes()
            for folder in ("one", "two")
        ]
        assert drawn[0].startswith(start)
        assert drawn[0] == drawn[1]


def test_a_panel_has_the_width_of_a_column(run: Path, tmp_path: Path) -> None:
    wide = {}
    for style in plots.STYLES:
        (file,) = plots.draw(run, tmp_path / style, names=["delay_cdf"], style=style, format="png")
        wide[style] = pyplot.imread(file).shape[1] / 130  # dots per inch
    assert wide["ieee"] == pytest.approx(2 * 3.5, abs=0.02)
    assert wide["default"] > 2 * 5.0  # panels, and their keys beside


def test_the_table_has_the_numbers_of_the_run_and_no_command_of_tex_from_names(run: Path) -> None:
    text = plots.latex(run)
    parts = json.loads((run / "summary.json").read_text())["scenarios"]
    assert text.count(r"\begin{tabular}{lrrrr}") == text.count(r"\end{tabular}") == len(parts)
    rows = [line.split(" & ") for line in text.splitlines() if " & " in line and "priced delay" not in line]
    found = iter(rows)
    for part in parts.values():
        for line in part["summary"]:
            name, delay, difference, *_ = next(found)
            assert re.sub(r"\\(?=[&%$#_{}])", "", name).startswith(line["title"][:3])
            digits = ".2f" if "." in delay.split(" ")[0] else ".0f"
            assert delay.split(" ")[0] == format(line["priced_delay"]["mean"], digits)
            if line["difference"]["mean"] is not None:
                shown = f"{100.0 * line['difference']['mean']:+.1f}".replace("-", "$-$")
                assert difference.split(" ")[0] == shown
    outside = re.sub(r"\\[a-z]+|\\[&%$#_{}\\]|\$-\$", "", "\n".join(text.splitlines()[1:]))
    assert not re.search(r"[$#_~^…–]", outside)


def test_a_run_of_one_scenario_has_pictures_and_a_table_too(tmp_path: Path) -> None:
    evaluate(["dssra", "random"], scenario="small", seeds=2, rounds=2, out=tmp_path / "out")
    assert "small: 2 held-out episodes of 2 rounds, surrogate learner" in plots.latex(tmp_path / "out")
    assert [file.name for file in plots.draw(tmp_path / "out", names=["gantt-small"])] == ["gantt-small.pdf"]


def test_the_command_draws_what_is_asked_for(run: Path, tmp_path: Path, capsys) -> None:
    words = ["--style", "ieee", "--latex", "--pictures", "delay", "backlog"]
    words += ["--schedulers", "dssra", "random"]
    assert main(["plot", str(run), "--out", str(tmp_path / "p"), *words]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [Path(line).name for line in printed] == ["delay.pdf", "backlog.pdf", "table.tex"]
    assert all(Path(line).stat().st_size > 100 for line in printed)
    assert "steroid" not in (tmp_path / "p" / "table.tex").read_text()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"names": ["dealy"]}, "did you mean 'delay'"),
        ({"schedulers": ["dsra"]}, "did you mean 'dssra'"),
        ({"format": "gif"}, "pdf, svg, png"),
        ({"style": "acm"}, "default, ieee"),
    ],
)
def test_mistakes_are_named(run: Path, tmp_path: Path, given, words) -> None:
    with pytest.raises(DataError, match=words):
        plots.draw(run, tmp_path / "none", **given)
    assert not (tmp_path / "none").exists()
