"""The promises of the package as a package: light to import, no code in data files, pinned for development."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lqf

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CORE = ("torch", "numpy", "PIL", "safetensors")
OPTIONAL = (
    "rich",
    "jinja2",
    "sklearn",
    "scipy",
    "matplotlib",
    "timm",
    "torchvision",
    "typer",
    "elpv_dataset",
    "pandas",
    "pyarrow",
    "pillow_heif",
    "triton",
    "starlette",
    "uvicorn",
)
PICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def run_python(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, cwd=ROOT / "src", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADED = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_import_brings_in_nothing_optional():
    loaded = set(json.loads(run_python(LOADED, "lqf"))) - set(json.loads(run_python(LOADED, *CORE)))
    assert not loaded & set(OPTIONAL)


WITHOUT_OPTIONAL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    sys.modules[name] = None  # importing it raises ImportError
import lqf, lqf_paper
walks = [pkgutil.walk_packages(p.__path__, p.__name__ + ".") for p in (lqf, lqf_paper)]
names = [m.name for walk in walks for m in walk if not m.name.endswith("__main__")]
names = [n for n in names if not n.endswith("_kernels")]  # a GPU's kernels, which nothing imports elsewhere
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_every_module_imports_with_the_core_packages_alone():
    assert int(run_python(WITHOUT_OPTIONAL, *OPTIONAL)) >= 200


def test_the_estimator_loads_nothing_of_the_paper():
    loaded = """
import sys, lqf.estimator, lqf.cli.fit, lqf.reports.report
print([name for name in sys.modules if name.startswith("lqf_paper")])
"""
    assert run_python(loaded) == "[]\n"


def unsafe_uses(source: str) -> list[str]:
    """What in `source` could run code from a data file: picklers, eval/exec, loads that allow pickles."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [a.name for a in names if a.name.partition(".")[0] in PICKLERS]
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in PICKLERS:
                found.append(module)
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                found.append(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load"), keywords=keywords):
                if not any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in keywords):
                    found.append("torch.load without weights_only=True")
            case ast.keyword(arg="weights_only", value=value) if ast.unparse(value) != "True":
                found.append("weights_only other than True")
            case ast.keyword(arg="allow_pickle", value=value) if ast.unparse(value) != "False":
                found.append("allow_pickle other than False")
    return found


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from joblib import load", "eval('1')", "torch.load(f)", "load(f, weights_only=False)"],
)
def test_the_search_for_unsafe_code_finds_it(source):
    assert unsafe_uses(source)


def test_the_search_for_unsafe_code_leaves_eval_mode_alone():
    assert not unsafe_uses("model.eval(); torch.load(f, weights_only=True)")


def test_no_source_file_can_run_code_from_data():
    found = {str(p.relative_to(ROOT)): unsafe_uses(p.read_text("utf-8")) for p in SOURCES}
    assert {name: uses for name, uses in found.items() if uses} == {}


def test_changelog_knows_this_version():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert {"Unreleased", lqf.__version__} & set(headings)


def canonical(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def test_constraints_pin_every_dependency_exactly():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()]
    pins = [line for line in lines if line]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    assert {canonical(r) for r in named} - {canonical(project["name"])} <= {canonical(pin) for pin in pins}


def test_types_are_announced():
    assert (ROOT / "src" / "lqf" / "py.typed").is_file()
