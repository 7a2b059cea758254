"""The site is built strictly: no broken link, anchor, name or formula. Needs the extra ``docs``."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers.python", "latex2mathml", "nbconvert")


def missing():
    try:
        return [name for name in NEEDED if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError as error:
        return [str(error.name)]


@pytest.mark.skipif(
    bool(missing()), reason=f"not installed: {', '.join(missing())}; pip install -e '.[docs]'"
)
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    pages = sorted(tmp_path.glob("*.html"))
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= {page.stem for page in pages}
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert (tmp_path / "notebooks" / notebook.name).read_bytes() == notebook.read_bytes()
        shown = (tmp_path / f"notebook_{notebook.stem}.html").read_text(encoding="utf-8")
        assert f"notebooks/{notebook.name}" in shown
        assert not re.findall(r"href=\"?[^\">]*\.md\b", shown)
        assert f"notebook_{notebook.stem}.html" in (tmp_path / "install.html").read_text(encoding="utf-8")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?://[^\s\">]+)", text)
        assert not loaded, page.name
        assert 'class="arithmatex"' not in text, f"{page.name} has a formula that was not rendered"
    reference = "".join(page.read_text(encoding="utf-8") for page in tmp_path.glob("reference*.html"))
    assert not re.findall(r":(?:class|func|meth|mod|attr):", reference), "a role was not turned into Markdown"
    assert 'id="collapipe_env.CollaPipeEnv.simulate"' in reference
    formulas = (tmp_path / "system_model.html").read_text(encoding="utf-8").count("<math ")
    assert formulas > 100
    if BROWSER:
        assert "md-search-result__item" in found_in_a_browser(tmp_path / "index.html", "heat")


def found_in_a_browser(page, words):
    """Text of the page once a browser has opened it without a server and searched it."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        address = f"{page.as_uri()}?q={words}"
        command = [str(BROWSER), *options, "--virtual-time-budget=20000", "--dump-dom", address]
        shown = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    return shown.decode(errors="replace")


def notebook_of(*sources):
    nbformat = pytest.importorskip("nbformat", reason="not installed: nbformat; pip install -e '.[docs]'")
    v4 = nbformat.v4
    cells = [v4.new_markdown_cell(sources[0]), *map(v4.new_code_cell, sources[1:])]
    return v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})


@pytest.fixture
def notebooks_hook(monkeypatch):
    pytest.importorskip("nbconvert", reason="not installed: nbconvert; pip install -e '.[docs]'")
    pytest.importorskip("mkdocs", reason="not installed: mkdocs; pip install -e '.[docs]'")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import site_notebooks

    return site_notebooks


def test_a_notebook_becomes_markdown(notebooks_hook):
    from nbformat.v4 import new_output

    notebook = notebook_of("# T\n\n[a](../docs/a.md#b) and [c](c.ipynb)", "x = 1", "x")
    notebook.cells[1].outputs = [new_output("stream", name="stdout", text="said\n")]
    notebook.cells[2].outputs = [
        new_output("display_data", data={"text/markdown": "## Table\n\n| a |\n|---|\n| 1 |"}),
        new_output("display_data", data={"image/png": "AAEC"}),
    ]
    text, pictures = notebooks_hook.page("t", notebook)
    ((place, content),) = pictures.items()
    assert content == bytes([0, 1, 2])
    assert [line for line in text.splitlines() if line.strip()] == [
        "# T",
        "[Download this notebook](notebooks/t.ipynb){ download }",
        "[a](a.md#b) and [c](notebook_c.md)",
        *["```python", "x = 1", "```", "``` { .text .printed }", "said", "```", "```python", "x", "```"],
        *["**Table**", "| a |", "|---|", "| 1 |", f"![png]({place})"],
    ]


def test_outputs_are_stored_and_a_failing_notebook_stays_as_it_was(tmp_path, monkeypatch, capsys):
    nbformat = pytest.importorskip("nbformat", reason="not installed: nbformat; pip install -e '.[docs]'")
    pytest.importorskip("ipykernel", reason="not installed: ipykernel; pip install -e '.[docs]'")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import run_notebooks
    from nbclient.exceptions import CellExecutionError

    path = tmp_path / "n.ipynb"
    monkeypatch.setattr(run_notebooks, "NOTEBOOKS", tmp_path)
    nbformat.write(
        notebook_of("# T", "import sys; print('said', file=sys.stderr)", "print('told'); 6 * 7"), path
    )
    run_notebooks.main(["n"])
    stored, text = nbformat.read(path, as_version=4), path.read_text(encoding="utf-8")
    assert "said" in capsys.readouterr().err
    assert [cell.outputs for cell in stored.cells[1:]] == [
        [],
        [
            {"output_type": "stream", "name": "stdout", "text": "told\n"},
            {
                "output_type": "execute_result",
                "execution_count": 2,
                "metadata": {},
                "data": {"text/plain": "42"},
            },
        ],
    ]
    assert stored.metadata.code_digest == run_notebooks.code_digest(stored)
    run_notebooks.main(["n"])
    assert path.read_text(encoding="utf-8") == text
    for code, error in (("1 / 0", CellExecutionError), ("import os; print(os.getcwd())", ValueError)):
        nbformat.write(notebook_of("# T", code), path)
        before = path.read_bytes()
        with pytest.raises(error):
            run_notebooks.run(path)
        assert path.read_bytes() == before
    with pytest.raises(SystemExit):
        run_notebooks.main(["other"])


def test_the_site_is_set_to_load_nothing_from_elsewhere():
    settings = YAML(typ="safe", pure=True).load(ROOT / "mkdocs.yml")
    assert settings["theme"]["font"] is False
    assert "extra_javascript" not in settings
    assert all((ROOT / "docs" / script).is_file() for script in settings["extra"]["polyfills"])
    for sheet in settings["extra_css"]:
        assert "http" not in (ROOT / "docs" / sheet).read_text(encoding="utf-8")
