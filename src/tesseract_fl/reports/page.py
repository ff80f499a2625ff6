"""The page as one file: markup, style, scripts, Plotly and the data, with nothing to load from anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from tesseract_fl import __version__
from tesseract_fl.data.base import needs_extra
from tesseract_fl.reports.grid import is_grid, read_grids
from tesseract_fl.reports.overview import histories, names_apart, overview
from tesseract_fl.reports.sources import Source, opened

CELLS_OF_A_FILE = 100_000  # of all heat maps together: with Plotly that stays under eight megabytes
_SCRIPTS = ("values.js", "charts.js", "heat.js", "page.js")
# Plotly sets styles on elements as it draws; scripts are named one by one, and nothing may be loaded or sent
POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src data: blob:; connect-src {connect}; "
    "base-uri 'none'; form-action 'none'"
)


def write_report(directories: Sequence[Path], path: Path, command: str) -> None:
    """One HTML file about runs, federations and grids, which opens from disk."""
    grids = [grid for directory in directories if is_grid(directory) for grid in read_grids(directory)]
    sources = [opened(directory) for directory in directories if not is_grid(directory)]
    for source in sources:
        source.read()
    cells = CELLS_OF_A_FILE // max(1, len(sources))
    runs = [overview(source, cells) | {"histories": histories(source, cells)} for source in sources]
    page = described(runs, sources, command) | {"grids": grids}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(standing_alone(page), encoding="utf-8")


def described(runs: Sequence[dict[str, Any]], sources: Sequence[Source], command: str) -> dict[str, Any]:
    labels = names_apart([source.directory.resolve().name for source in sources])
    return {
        "runs": [run | {"label": label} for run, label in zip(runs, labels, strict=True)],
        "grids": [],
        "command": command,
        "made": f"tesseract-fl {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def standing_alone(page: Mapping[str, Any]) -> str:
    scripts = [plotly(), script()]
    policy = POLICY.format(
        style="'unsafe-inline'", connect="'none'", script=" ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    )
    return _filled(
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        style=f"<style>\n{style()}</style>",
        data=embedded(page),
        scripts="\n".join(f"<script>{text}</script>" for text in scripts),
    )


def served() -> str:
    """The page of a server that has the rest under names of its own."""
    return _filled(
        policy="",
        style='<link rel="stylesheet" href="page.css">',
        data=embedded({"live": True}),
        scripts='<script src="plotly.js"></script>\n<script src="page.js"></script>',
    )


def embedded(page: Mapping[str, Any]) -> str:
    """JSON inside a page: without <, nothing that a client wrote can end the element or begin another."""
    text = json.dumps(page, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>'


def style() -> str:
    return _part("page.css")


def script() -> str:
    return "\n".join(_part(name) for name in _SCRIPTS)


def plotly() -> str:
    try:
        content = pkgutil.get_data("plotly", "package_data/plotly.min.js")
    except ImportError as error:
        raise needs_extra("plotly", "report") from error
    assert content is not None
    return content.decode()


def _filled(**parts: str) -> str:
    text = _part("page.html")
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return text


def _part(name: str) -> str:
    return (files("tesseract_fl.reports") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
