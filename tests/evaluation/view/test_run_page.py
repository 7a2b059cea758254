"""The page of a finished run, its videos and traces: what they hold, and what is refused."""

import csv
import io
import json
import re
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from chrome_trace_support import last_end_s, require_trace
from view_support import HOSTILE, QUICK, compared, data_of

from collapipe_env import Process, evaluate, register_process, write_page
from collapipe_env.cli.main import main
from collapipe_env.dynamics import PROCESSES, CarriedArray
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.view.packed_rounds import episode_layout
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.system import link_path_gains


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return compared(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    assert main(["view", str(run)]) == 0
    return run / "view.html"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Path:
    """A small evaluation in Python, whose report holds all rounds."""
    out = tmp_path_factory.mktemp("evaluated") / "out"
    evaluate(["dssra", "random"], scenario="small", seeds=2, rounds=2, out=out)
    return out


def stored_rounds(run: Path, scenario: str, scheduler: str) -> list[dict[str, str]]:
    """Lines of the first episode in the file of all rounds."""
    with (run / "results.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["scenario"].startswith(f"'@{scenario}<")]
    return [line for line in lines if (line["scheduler"], line["episode"]) == (scheduler, "0")]


def test_rounds_of_the_page_are_those_that_were_played(run: Path, page: Path) -> None:
    data = data_of(page)
    assert sorted(detail["name"] for detail in data["details"]) == ["asteroid", "dssra", "random"]
    assert data["details"][0]["name"] == "dssra"  # the reference
    for detail in data["details"]:
        played = stored_rounds(run, "small", detail["name"])
        curves = {chart["key"]: chart["lines"][detail["name"]] for chart in data["charts"]}
        (time,) = [s["time"] for s in data["schedulers"] if s["name"] == detail["name"]]
        delays = [float(line["delay_s"]) for line in played]
        np.testing.assert_allclose(curves["delay"], delays, rtol=1e-4)
        np.testing.assert_allclose(time, np.cumsum(delays), rtol=1e-5)
        assert len(detail["rounds"]) == len(played) == data["rounds"] == len(data["at"]) == 5
        for one, line in zip(detail["rounds"], played, strict=True):
            clusters = one["clusters"]
            assert sum(map(sum, (c["queue"] for c in clusters))) == pytest.approx(
                float(line["backlog"]), rel=1e-4, abs=1e-6
            )
            for c in clusters:
                # Every cluster's last phase is the broadcast, which ends the round.
                assert c["phases"][-1][2] == pytest.approx(float(line["delay_s"]), rel=1e-5)
                assert c["phases"][-1][0] == "broadcast"
                element, direction, _, gaps, lengths = c["events"]
                ends = (np.cumsum(gaps) + lengths) * float(line["delay_s"]) / 1e5
                (_, start, end) = next(phase for phase in c["phases"] if phase[0] == "step")
                # Forward and back, each micro-batch passes each element of the first local step.
                wanted = 2 * c["batches"] * len(c["elements"])
                assert sum(d < 2 for d in direction) == wanted
                assert {*element} == {*range(len(c["elements"]))}
                assert start <= ends.max() <= end * (1 + 1e-4)
                blocks = re.findall(r"\d, (\d+) block", json.dumps(c["elements"]))
                assert sum(map(int, blocks)) == load_scenario("small").blocks


@pytest.mark.parametrize("name", ["small", "small-wild"])
def test_the_layout_is_that_of_the_episode(name: str) -> None:
    scenario = load_scenario(name)
    layout = episode_layout(scenario, 3)
    env = CollaPipeVectorEnv(num_envs=1, scenario=scenario, learner="surrogate")
    env.reset(seed=HELD_OUT_SEED + 3)
    np.testing.assert_allclose(env._mdp.world.system._base.link_gain[0], link_path_gains(layout))


def test_tables_call_schedulers_by_their_titles_and_give_energy_in_percent(run: Path, page: Path) -> None:
    tables = {table["key"]: table for table in data_of(page)["tables"]}
    of = {key: [dict(zip(t["columns"], row, strict=True)) for row in t["rows"]] for key, t in tables.items()}
    for name in ("small", "small-wild"):
        lines = [line for line in of["schedulers"] if line["scenario"].startswith(f"@{name}<")]
        assert len(lines) == 3
        assert lines == sorted(lines, key=lambda line: line["priced delay (s)"])
    assert sorted(line["scheduler"] for line in of["schedulers"]) == sorted(
        ["DSSRA", "Asteroid", "Random"] * 2
    )
    with (run / "episodes.csv").open() as file:
        stored = sorted(
            100.0 * (float(line["worst_mean_energy_ratio"]) - 1.0) for line in csv.DictReader(file)
        )
    excess = [line["over budget (%)"] for line in of["episodes"]]
    np.testing.assert_allclose(sorted(excess), stored, rtol=1e-5)
    means = [line["over budget (%)"] for line in of["schedulers"]]
    np.testing.assert_allclose(sorted(means), sorted(np.reshape(excess, (-1, 2)).mean(-1)), rtol=1e-5)


def test_hostile_names_stay_text(run: Path, page: Path) -> None:
    text = page.read_text()
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert HOSTILE in data_of(page)["title"]
    assert "&lt;/script&gt;&lt;img" in (run / "table.md").read_text()
    assert "<" not in (run / "table.md").read_text()


def test_the_page_may_load_nothing_and_is_the_same_again(run: Path, page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    # The name of SVG's elements is not an address that is loaded.
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert write_page(run, tmp_path / "again.html").read_text() == text


@pytest.mark.slow
def test_500_rounds_of_64_devices_stay_below_10_mb(tmp_path: Path) -> None:
    scenario = load_scenario("large").with_overrides({"name": "eight", "cluster.clusters": 8})
    assert scenario.clusters * scenario.max_devices == 64
    (tmp_path / "eight.yaml").write_text(scenario.to_yaml())
    out = tmp_path / "out"
    options = ["--episodes", "1", "--rounds", "500", "--schedulers", "dssra", "pipeline", "random", *QUICK]
    assert main(["evaluate", "--scenario", str(tmp_path / "eight.yaml"), *options, "--out", str(out)]) == 0
    assert main(["view", str(out)]) == 0
    assert (out / "view.html").stat().st_size < 10_000_000
    assert all(len(d["rounds"]) * d["every"] >= 500 for d in data_of(out / "view.html")["details"])


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize(("name", "scheduler"), [("small", "dssra"), ("small-wild", "asteroid")])
def test_a_trace_lasts_as_long_as_the_stored_round(
    run: Path, name: str, scheduler: str, number: int, tmp_path: Path
) -> None:
    out, which = tmp_path / "round.json", ["--scenario", f"@{name}{HOSTILE}", "--scheduler", scheduler]
    assert main(["view", str(run), *which, "--round", str(number), "--trace", str(out)]) == 0
    spans, processes, _ = require_trace(json.loads(out.read_text()))
    assert sorted(processes.values()) == ["c0", "c1"]
    stored = float(stored_rounds(run, name, scheduler)[number - 1]["delay_s"])
    assert last_end_s(spans) == pytest.approx(stored, rel=1e-6)


def refusal(capsys, *arguments: object) -> str:
    capsys.readouterr()
    assert main(["view", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("view.html")))


def test_what_is_no_finished_run_is_refused(run: Path, tmp_path: Path, capsys) -> None:
    copy = copied(run, tmp_path)
    (copy / "summary.json").unlink()
    assert "is not finished (summary.json is missing)" in refusal(capsys, copy)
    (tmp_path / "run.json").write_text('{"kind": "execution"}')
    assert "a run of execution, of which collapipe view makes no page" in refusal(capsys, tmp_path)


def test_damaged_files_are_named(run: Path, evaluated: Path, tmp_path: Path, capsys) -> None:
    copy = copied(run, tmp_path)
    folder = next(path for path in (copy / "evaluation").iterdir() if "wild" not in path.name)
    episode, content = folder / "dssra-0.npz", (folder / "dssra-0.npz").read_bytes()
    with zipfile.ZipFile(folder / "random-0.npz") as other, zipfile.ZipFile(io.BytesIO(content)) as own:
        members = {name: other.read(name) for name in other.namelist()}
        members["episode.json"] = own.read("episode.json")
    with zipfile.ZipFile(episode, "w") as mixed:
        for name, member in members.items():
            mixed.writestr(name, member)
    assert "when it is played again, but took" in refusal(capsys, copy)
    episode.write_bytes(content[:-140])
    assert f"{episode} is damaged" in refusal(capsys, copy)
    episode.unlink()
    assert f"cannot read {episode}" in refusal(capsys, copy)
    (copy / "summary.json").write_text('{"scenarios": {"x": {}}}')
    told = refusal(capsys, copy)
    assert (
        f"{copy / 'summary.json'} is damaged or of an older version ('summary' is missing): run its" in told
    )
    assert not list(copy.glob("*view.html*"))
    shutil.rmtree(copy)
    file = copied(evaluated, tmp_path) / "scenario.yaml"
    file.write_text(file.read_text().replace("clusters: 2\n", "clusters: 1\n"))
    told = refusal(capsys, copy)
    assert f"episode 0 of 'dssra' cannot be played again in {file} (" in told
    assert "this file was changed" in told
    assert file.name in refusal(capsys, copy, "--video", tmp_path / "film.gif")


@dataclass(frozen=True)
class RainSpec:
    share: float = 0.3


class Rain(Process):
    name = "rain"
    Spec = RainSpec
    endogenous = False
    numbers = 1
    carries = MappingProxyType({"falls": CarriedArray("")})

    def begin(self, _system, u):
        return {"falls": u[:, 0] * 1.0}

    def advance(self, _carried, _state, _costs, u, _delta_s):
        return {"falls": u[:, 0] * 1.0}


def test_runs_with_a_process_of_ones_own_have_pages_from_python(tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(PROCESSES, "_added", {})
        register_process(Rain)
        scenario = {"base": "small", "dynamics": {"processes": {"rain": {"share": 0.5}}}}
        evaluate(["random", "pipeline"], scenario=scenario, seeds=2, rounds=2, out=out)
        assert write_page(str(out)) == out / "view.html"
        page = write_page(out, tmp_path / "other.html", schedulers="pipeline", episode=1)
    assert [d["name"] for d in data_of(out / "view.html")["details"]] == ["random", "pipeline"]
    assert [d["name"] for d in data_of(page)["details"]] == ["pipeline"]
    told = refusal(capsys, out)
    assert f"{out / 'scenario.yaml'}: " in told
    assert "process 'rain' is not known: valid names: " in told
    assert "once its file is imported: commands do that for a scenario named as file.py:Name" in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"out": "page.png"}, "out = 'page.png': give a path that ends in .html"),
        ({"scenario": "nowhere"}, "scenario 'nowhere' is not in"),
        ({"schedulers": "nobody"}, "scheduler 'nobody' did not play"),
        ({"episode": -1}, "episode -1 was not played by 'dssra': use a number from 0 to 1"),
        ({"episode": 2}, "episode 2 was not played by 'dssra': use a number from 0 to 1"),
    ],
)
def test_pages_that_cannot_be_written_from_python(evaluated: Path, given: dict, told: str) -> None:
    with pytest.raises(CollaPipeError, match=told):
        write_page(**{"run": evaluated, **given})


def test_a_gif_has_a_picture_for_each_frame(run: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    out = tmp_path / "episode.gif"
    assert main(["view", str(run), "--video", str(out), "--frames", "2", "--fps", "4"]) == 0
    with image.open(out) as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (2, (1200, 800), 250)
        first = np.asarray(film.convert("RGB"))
        film.seek(1)
        assert (np.asarray(film.convert("RGB")) != first).any()


def test_mp4_needs_ffmpeg(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "needs the program ffmpeg" in refusal(capsys, run, "--video", tmp_path / "episode.mp4")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not on the path")
def test_mp4_has_a_picture_for_each_frame(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "episode.mp4"
    assert main(["view", str(run), "--video", str(out), "--frames", "3"]) == 0
    command = ["ffmpeg", "-i", str(out), "-map", "0:v", "-f", "framemd5", "-"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len([line for line in told.stdout.splitlines() if not line.startswith("#")]) == 3


def test_pages_show_validations(evaluated: Path, tmp_path: Path) -> None:
    report = json.loads((evaluated / "results.json").read_text())
    report["training"] = [{"steps": 8, "priced_delay": 9.75, "mean_delay": 9.5, "energy_ratio": 1.25}]
    copy = copied(evaluated, tmp_path)
    (copy / "results.json").write_text(json.dumps(report))
    assert main(["view", str(copy), "--out", str(tmp_path / "new" / "page.html")]) == 0
    assert data_of(tmp_path / "new" / "page.html")["tables"][-1]["rows"] == [[8, 9.75, 9.5, 25.0]]


@pytest.mark.slow  # as the command does
def test_the_loop_of_the_page_about_it_writes_a_gif(tmp_path: Path, monkeypatch) -> None:
    image = pytest.importorskip("PIL.Image")
    page = Path(__file__).parents[3] / "docs" / "view.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {})
    with image.open(tmp_path / "rounds.gif") as film:
        assert film.n_frames == 3
    assert (page.parent / "images" / "view.png").stat().st_size < 200_000
