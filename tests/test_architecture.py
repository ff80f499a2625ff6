"""The house rules that a test can check: imports go one way, no pickle, examples run."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import tesseract_fl

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/tesseract_fl"

# each may import from those before it in this order, and from itself
LAYERS = [
    {"types", "mapped", "randomness"},
    {"registry", "checkpoint", "layout", "kernels"},
    {"gate", "reputation"},
    {"rules"},
    {"attacks", "data", "distributed", "models"},
    {"simulation", "flower"},
    {"experiments"},
    {"reports"},
    {"cli"},
]


def layer(module: str) -> int:
    name = module.split(".")[1]
    return next(i for i, names in enumerate(LAYERS) if name in names)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


MODULES = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    here = ".".join(("tesseract_fl", *path.relative_to(SOURCE).with_suffix("").parts))
    for name in imports(path):
        if name.startswith("tesseract_fl.") and not name.startswith("tesseract_fl.__version__"):
            assert layer(name) <= layer(here), f"{here} imports {name}"


def test_the_oracles_import_nothing_of_ours() -> None:
    for path in (ROOT / "tests/naive").glob("*.py"):
        assert not [name for name in imports(path) if name.startswith("tesseract_fl")]


def test_no_pickle_anywhere() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not {"pickle", "dill", "joblib", "torch.load"} & imports(path)
        assert "torch.load" not in path.read_text()


def all_modules() -> list[str]:
    return [m.name for m in pkgutil.walk_packages(tesseract_fl.__path__, "tesseract_fl.") if "__main__" not in m.name]


@pytest.mark.parametrize("name", all_modules())
def test_examples_in_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_everything_exported_is_there() -> None:
    for name in tesseract_fl.__all__:
        assert getattr(tesseract_fl, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = tesseract_fl.Nonsense


def test_the_python_examples_of_the_readme_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_commands_of_the_readme_exist() -> None:
    from tesseract_fl.cli import COMMANDS

    used = set(re.findall(r"tesseract-fl ([a-z]+)", (ROOT / "README.md").read_text()))
    assert used <= set(COMMANDS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE)) <= targets
