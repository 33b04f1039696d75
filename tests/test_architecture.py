"""The layout of the package and of its tests, read from the syntax trees: imports, sizes, names, folders."""

import ast
import tokenize
from pathlib import Path

import pytest

import geh_explain

PACKAGE = Path(geh_explain.__file__).parent
ROOT = PACKAGE.parent

#: Folders and top-level modules in the order in which data passes them. Each imports only from those before it.
ORDER = [
    *("errors", "_version", "_types", "_validation", "_memory", "_hashing", "_process", "storage"),
    *("data", "units", "model", "posterior", "engines"),
    *(
        "statistics",
        "scores",
        "plots",
        "groups",
        "run",
        "evidence",
        "analyses",
        "local",
        "interpret",
        "report",
        "results",
    ),
    *("explainer", "captum", "bnn", "baselines", "inference", "vision", "datasets", "demo", "cli"),
]

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(name):
    """Yield the modules of the package that a module imports: at its top, inside functions, or for types only."""
    for node in ast.walk(parse(MODULES[name])):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


IMPORTS = {name: {target for target in imported(name) if target in MODULES} for name in MODULES}


def part(name):
    """Return the folder or top-level module that a module belongs to."""
    return name.split(".")[1]


def test_every_folder_and_module_has_a_place_in_the_order():
    present = {part(name) for name in MODULES if name != "geh_explain"}
    assert present == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


@pytest.mark.parametrize("name", [name for name in MODULES if name != "geh_explain"])
def test_a_module_imports_only_from_earlier_folders(name):
    allowed = set(ORDER[: ORDER.index(part(name)) + 1])
    wrong = {target for target in IMPORTS[name] if target == "geh_explain" or part(target) not in allowed}
    assert not wrong, f"{name} imports {sorted(wrong)}"


def test_no_module_imports_itself_through_others():
    """Depth-first search for cycles; the ``__init__`` of a folder only gathers what is in it."""
    gathered = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    state: dict[str, str] = {}

    def visit(name, path):
        state[name] = "open"
        for target in sorted(IMPORTS[name] - gathered):
            if state.get(target) == "open":
                pytest.fail(" -> ".join([*path, name, target]))
            if target not in state:
                visit(target, [*path, name])
        state[name] = "done"

    for name in sorted(set(MODULES) - gathered):
        if name not in state:
            visit(name, [])


def test_a_folder_is_imported_as_a_whole_only_from_outside():
    """A module that imports the ``__init__`` of its own folder would import itself."""
    wrong = [
        (name, target)
        for name, targets in IMPORTS.items()
        for target in targets
        if MODULES[target].name == "__init__.py" and name.startswith(f"{target}.")
    ]
    assert wrong == []


def test_the_top_level_is_small():
    assert len(list(PACKAGE.glob("*.py"))) <= 13


@pytest.mark.parametrize("name", MODULES)
def test_no_module_shares_its_name_with_what_it_defines(name):
    names = {node.name for node in parse(MODULES[name]).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert name.rpartition(".")[2] not in names


def functions(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((node.name, child) for child in node.body if isinstance(child, ast.FunctionDef))
        elif isinstance(node, ast.Module):
            yield from ((None, child) for child in node.body if isinstance(child, ast.FunctionDef))


def test_only_public_functions_have_more_than_eight_parameters():
    wrong = []
    for name, path in MODULES.items():
        for owner, function in functions(parse(path)):
            arguments = function.args
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
            count -= bool(arguments.args and arguments.args[0].arg in ("self", "cls"))
            if count > 8 and not documented(function, owner):
                wrong.append(f"{name}.{owner or ''}.{function.name}: {count}")
    assert wrong == []


def documented(function, owner):
    """Whether the reference documents a function, or the class that it constructs or belongs to."""
    reference = geh_explain.__all__
    classes = [getattr(geh_explain, name) for name in reference if isinstance(getattr(geh_explain, name), type)]
    public = {
        *reference,
        *(base.__name__ for each in classes for base in each.__mro__),
        *(
            name
            for module in ("interpret", "inference", "bnn", "posterior")
            for name in getattr(geh_explain, module).__all__
        ),
    }
    return (owner or function.name) in public and (not function.name.startswith("_") or function.name == "__init__")


def test_files_are_short():
    folders = ("geh_explain", "tests", "studies", "benchmarks", "examples", "tools", "docs")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    long = {str(path): n for path in paths if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert long == {}


def tokens(path):
    with tokenize.open(path) as file:
        return list(tokenize.generate_tokens(file.readline))


def shares(paths):
    """Return the shares of non-blank lines that are docstrings, and comments."""
    lines = documented_lines = comments = 0
    for path in paths:
        text = path.read_text(encoding="utf-8").splitlines()
        lines += sum(bool(line.strip()) for line in text)
        comments += len({token.start[0] for token in tokens(path) if token.type == tokenize.COMMENT})
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                first = node.body[0]
                documented_lines += sum(bool(line.strip()) for line in text[first.lineno - 1 : first.end_lineno])
    return documented_lines / lines, comments / lines


def test_the_code_explains_itself():
    docstrings, comments = shares(MODULES.values())
    assert docstrings >= 0.30
    assert comments >= 0.03


TESTS = Path(__file__).parent


def test_folders_of_tests_are_those_of_the_package():
    tested = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*") if list(path.glob("test_*.py"))}
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")} - {"."}
    beside_the_package = {"long", "studies"}
    assert tested - beside_the_package <= folders
    assert {folder for folder in folders if "/" not in folder} <= tested


#: Functions whose call at the top of a test file would sample, train or explain something before any test runs.
COMPUTING = {"randn", "rand", "randint", "normal", "default_rng", "random_points", "uniform_points", "mlp", "cnn"}
COMPUTING |= {"Linear", "Conv1d", "Conv2d", "GEHExplainer", "explain", "explain_point", "explain_draws", "fit", "train"}


def called_at_import(node):
    """Yield the names of functions that run when a module is imported: those outside of functions and lambdas."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        at_import = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]
    else:
        at_import = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call):
        yield node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    for child in filter(None, at_import):
        yield from called_at_import(child)


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_nothing_is_computed_when_tests_are_imported(path):
    assert not set(called_at_import(parse(path))) & COMPUTING
