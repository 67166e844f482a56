"""Imports flow down only, folders are small, methods keep to their part."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "unida"

PACKAGES = (
    "errors", "utils", "types", "config",  # for every package
    "data", "protocols", "models", "ops", "losses", "methods",  # images → outputs
    "legacy", "training", "decision", "sharing", "model", "evaluation",  # batches → a trained model
    "discovery", "report", "result", "source_free", "pipeline",  # the main job, then its report
    "embedding", "review", "exchange", "export", "estimator", "bench",  # what is done with it
    "cli",
)  # fmt: skip
"""A file may import from its own package and from those before it."""

OPTIONAL = (
    "transformers", "timm", "mlxtend", "matplotlib", "optuna", "ray", "onnx", "onnxscript",
    "onnxruntime", "datasets", "openvino", "tensorboard", "wandb", "mlflow", "fastapi", "pyarrow",
)  # fmt: skip
"""Packages of extras: imported only when they are needed."""

MAX_MODULES = 16
MAX_ROOT_MODULES = 12

FILES = sorted(SRC.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}
FOLDERS = sorted({path.parent for path in FILES})
ENTRY_POINTS = ("__init__", "__main__")
METHOD_FILES = sorted((SRC / "methods").glob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """Full names of imported modules, wherever in the file they stand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages_used(path: Path) -> set[str]:
    names = [name.split(".") for name in imports(TREES[path])]
    used = {parts[1] for parts in names if parts[0] == "unida" and len(parts) > 1}
    return used - {"__version__"}


def name_of(path: Path) -> str:
    return str(path.relative_to(SRC))


def test_every_package_is_in_the_list_and_every_listed_one_is_there() -> None:
    assert {package_of(path) for path in FILES} - set(ENTRY_POINTS) == set(PACKAGES)


def test_imports_flow_down_only() -> None:
    back_edges = {
        f"{name_of(path)} imports {used}"
        for path in FILES
        if package_of(path) in PACKAGES
        for used in packages_used(path)
        if used not in PACKAGES[: PACKAGES.index(package_of(path)) + 1]
    }
    assert not back_edges, "\n".join(sorted(back_edges))


def test_no_folder_has_too_many_modules() -> None:
    modules = {f: [p for p in f.glob("*.py") if p.stem not in ENTRY_POINTS] for f in FOLDERS}
    limits = {f: MAX_ROOT_MODULES if f == SRC else MAX_MODULES for f in FOLDERS}
    limits[SRC / "cli"] = 24  # one file a command
    assert {name_of(f): len(m) for f, m in modules.items() if len(m) > limits[f]} == {}


def test_a_package_has_a_docstring_on_its_contents() -> None:
    lines = {}
    for folder in FOLDERS:
        docstring = ast.get_docstring(TREES[folder / "__init__.py"]) or ""
        lines[name_of(folder)] = len(docstring.splitlines())
    del lines["."]  # the public API
    assert {name: n for name, n in lines.items() if not 3 <= n <= 8} == {}


def test_the_public_api_imports_nothing_until_it_is_used() -> None:
    code = "import sys, unida; print(sorted(m for m in sys.modules if m.startswith('unida.')))"
    assert run_python(code) == "[]"
    assert packages_used(SRC / "__init__.py") <= {"embedding", "pipeline", "estimator", "model"}


def test_losses_use_no_config_and_no_module() -> None:
    for path in (SRC / "losses").glob("*.py"):
        assert packages_used(path) <= {"losses", "ops"}, name_of(path)
        assert not {"torch.nn", "torch.nn.Module"} & set(imports(TREES[path])), name_of(path)
        classes = [node for node in ast.walk(TREES[path]) if isinstance(node, ast.ClassDef)]
        assert classes == [], name_of(path)


def test_methods_is_a_literal_dict_of_names() -> None:
    tables = [
        node.value
        for node in TREES[SRC / "methods" / "__init__.py"].body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "METHODS"
    ]
    assert len(tables) == 1
    table = tables[0]
    assert isinstance(table, ast.Dict)
    assert all(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in table.keys)
    assert all(isinstance(value, ast.Name) for value in table.values)


def test_every_method_file_is_in_the_table() -> None:
    from unida.methods import METHODS

    files = {path.stem for path in METHOD_FILES} - {"__init__", "base", "presets"}
    assert {cls.__module__.rpartition(".")[2] for cls in METHODS.values()} == files


@pytest.mark.parametrize("path", METHOD_FILES, ids=name_of)
def test_a_method_does_not_step_move_print_or_open(path: Path) -> None:
    calls = [n.func for n in ast.walk(TREES[path]) if isinstance(n, ast.Call)]
    names = {f.id for f in calls if isinstance(f, ast.Name)}
    attributes = {f.attr for f in calls if isinstance(f, ast.Attribute)}
    assert not names & {"print", "open"}
    assert not attributes & {"backward", "step", "to", "cuda", "cpu", "open", "write_text"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_optional_packages_are_not_imported_until_they_are_needed() -> None:
    code = f"import sys, unida.cli.main; print([m for m in {OPTIONAL} if m in sys.modules])"
    assert run_python(code) == "[]"


def test_no_file_imports_an_optional_package_at_its_top() -> None:
    for path in FILES:
        top = ast.Module([n for n in TREES[path].body if _is_import(n)], [])
        assert not {name.split(".")[0] for name in imports(top)} & set(OPTIONAL), name_of(path)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def test_every_file_that_is_no_code_is_installed_with_the_package() -> None:
    """Without a pattern in pyproject.toml a wheel would lack it, and a checkout would not show."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = content["tool"]["setuptools"]["package-data"]["unida"]
    installed = {path for pattern in patterns for path in SRC.glob(pattern)}
    others = {p for p in SRC.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert len(others) > 5
    assert sorted(map(name_of, others - installed)) == []
