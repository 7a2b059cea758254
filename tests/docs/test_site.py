"""The site is built strictly: no broken link, anchor, name or formula. Needs the extra ``docs``."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers.python", "latex2mathml")


def missing():
    try:
        return [name for name in NEEDED if importlib.util.find_spec(name) is None]
    except ModuleNotFoundError as error:
        return [str(error.name)]


def test_docstrings_become_markdown(monkeypatch):
    pytest.importorskip("griffe", reason="not installed: griffe; pip install -e '.[docs]'")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from site_docstrings import markdown

    table = "====  ======\none   long\n      cell\ntwo   :func:`f`\n====  ======"
    link = '<autoref identifier="{}" optional><code>{}</code></autoref>'
    assert markdown(f"See :class:`~a.b.C`::\n\n    x = 1\n\n{table}", "m").splitlines() == [
        f"See {link.format('m.a.b.C', 'C')}:",
        "",
        "    x = 1",
        "",
        "|   |   |",
        "|---|---|",
        "| one | long cell |",
        f"| two | {link.format('m.f', 'f')} |",
    ]


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
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?://[^\s\">]+)", text)
        assert not loaded, page.name
        assert 'class="arithmatex"' not in text, f"{page.name} has a formula that was not rendered"
    reference = "".join(page.read_text(encoding="utf-8") for page in tmp_path.glob("reference_*.html"))
    assert not re.findall(r":(?:class|func|meth|mod|attr):", reference), "a role was not turned into Markdown"
    assert 'id="collapipe_env.CollaPipeEnv.simulate"' in reference
    formulas = (tmp_path / "system_model.html").read_text(encoding="utf-8").count("<math ")
    assert formulas > 100
