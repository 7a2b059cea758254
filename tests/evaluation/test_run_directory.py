"""A run's folder: made, continued, refused, cleared."""

import re
from pathlib import Path

import pytest

import collapipe_env
from collapipe_env.evaluation.run_directory import CONTENT, RunDirectory
from collapipe_env.ground.errors import DataError
from collapipe_env.ground.files import read_json, write_bytes, write_json

SCENARIO = {"name": "mine"}
ASKED = {"scenario": SCENARIO, "algo": "ppo", "steps": 5, "ppo": {"hidden": (2, 3), "clip": float("nan")}}


def test_same_options_continue_and_others_are_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    assert run.open(ASKED, fresh=False) is False
    assert run.open({**ASKED, "seed": 1}, fresh=False) is False  # nothing has been made of the first yet
    assert run.open(ASKED, fresh=False) is False
    (run / "checkpoints").mkdir()
    assert run.open(ASKED, fresh=False) is True
    with pytest.raises(DataError, match=r"ppo\.hidden was \[2, 3\], now \[9\].*--out.*--fresh"):
        run.open({**ASKED, "ppo": {**ASKED["ppo"], "hidden": [9]}}, fresh=False)
    with pytest.raises(DataError, match=r"ppo was \{.*, now \['xxx.* \.\.\. x*'\]\)") as refusal:
        run.open({**ASKED, "ppo": ["x" * 9999]}, fresh=False)
    assert len(str(refusal.value)) < 500
    with pytest.raises(DataError, match="seed was None, now 1"):
        run.open({**ASKED, "seed": 1}, fresh=False)


def test_fresh_removes_the_run_and_nothing_else(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.open(ASKED, fresh=False)
    made = [
        "evaluation/a.json",
        "checkpoints/best",
        "tensorboard/x",
        "figures/a.png",
        "scenarios/a.yaml",
    ]
    made += ["results.json", "results.csv", "episodes.csv", "summary.json", "table.md", "versions.json"]
    for name in (*made, "scenario.yaml", "notes.txt", "mine/figures/a.png"):
        write_bytes(tmp_path / name, b"{}")
    assert run.open({**ASKED, "steps": 6}, fresh=True) is False
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "notes.txt", "mine"}
    assert (tmp_path / "mine" / "figures" / "a.png").exists()


def test_starting_over_knows_every_name_that_commands_write() -> None:
    package = Path(collapipe_env.__file__).parent
    text = "\n".join(path.read_text() for path in package.rglob("*.py"))
    names = set(re.findall(r"""\brun / ["']([^"'/]+)["']""", text))
    assert len(names) > 20
    assert names <= set(CONTENT)


def test_writing_replaces_whole_files_and_leaves_no_scraps(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_json(path, {"x": [1.5, float("inf")], "y": {"z": float("nan")}})
    write_json(path, {"x": (1.5, float("inf"))})
    assert read_json(path, "remedy") == {"x": [1.5, None]}
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
    with pytest.raises(DataError, match="cannot write"):
        write_bytes(path / "below-a-file", b"")


@pytest.mark.parametrize(
    "content", [None, '{"mine": 1}', '{"kind": "thesis"}', '{"scenario": 3, "algo": "ppo"}', "{}", "{"]
)
@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, content: str | None, fresh: bool) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "thesis.tex").write_text("years of work")
    for use in (
        lambda: RunDirectory(tmp_path).open(ASKED, fresh=fresh),
        lambda: RunDirectory(tmp_path).locked("mine").__enter__(),
    ):
        with pytest.raises(DataError, match=r"run\.json.*: choose another place with --out$"):
            use()
    assert (tmp_path / "figures" / "thesis.tex").read_text() == "years of work"
    assert content is None or (tmp_path / "run.json").read_text() == content
    assert not (tmp_path / ".lock").exists()
    with pytest.raises(DataError, match="is a file"):
        RunDirectory(tmp_path / "figures" / "thesis.tex").open(ASKED, fresh=fresh)


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "comparison", "rounds": None, "learner": "real"},
        {"kind": "evaluation", "scenario": SCENARIO, "agent": None},
        {"kind": "evaluation in Python", "scenario": SCENARIO},
        {"scenario": SCENARIO, "agent": "0123"},
        ASKED,
    ],
)
def test_every_kind_of_run_is_known_again(tmp_path: Path, asked: dict[str, object]) -> None:
    run = RunDirectory(tmp_path / "run")
    assert [run.open(asked, fresh=fresh) for fresh in (False, False, True)] == [False, True, False]


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert RunDirectory(Path("~/x")) / "results.json" == tmp_path / "x" / "results.json"
    with pytest.raises(DataError, match="--out '~nobody-has-this-name/x'"):
        RunDirectory(Path("~nobody-has-this-name/x"))
