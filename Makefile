PYTHON ?= python3
# Virtual environments have another folder of programs on Windows.
PROGRAMS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := .venv/$(PROGRAMS)
READY := .venv/ready
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
PARALLEL := --numprocesses auto --maxprocesses 4 --dist worksteal

.PHONY: demo help test test-long test-min test-newest test-zoo coverage lint format docs pictures promises bench studies study-vision study-yardsticks studies-quick dist sbom clean

demo: $(READY)  ## train two small networks, explain them, draw the results
	$(BIN)/geh-explain demo

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: $(READY)  ## run the tests and the docstring examples
	$(PYTEST) $(PARALLEL)

test-long: $(READY)  ## run the long tests: fuzzed files, killed processes, random networks, soak, memory budgets (half an hour)
	$(PYTEST) tests/long --timeout 3600

test-min:  ## run the tests with the oldest supported versions of the dependencies (torch as in constraints.txt)
	$(PYTHON) -m venv .venv-min
	.venv-min/$(PROGRAMS)/python $(PIP_INSTALL) -c constraints-min.txt -e ".[vision]" pytest pytest-timeout hypothesis
	OMP_NUM_THREADS=1 .venv-min/$(PROGRAMS)/python -m pytest tests geh_explain --ignore tests/long --ignore tests/test_documentation.py

test-newest:  ## run the tests with the newest versions of torch and all other dependencies (no constraints)
	$(PYTHON) -m venv .venv-newest
	.venv-newest/$(PROGRAMS)/python $(PIP_INSTALL) --upgrade --upgrade-strategy eager -e ".[dev]"
	OMP_NUM_THREADS=1 .venv-newest/$(PROGRAMS)/python -m pytest $(PARALLEL)

test-zoo: $(READY)  ## explain every classification family of torchvision and write docs/architectures.md
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e ".[zoo]"
	GEH_EXPLAIN_ZOO=1 $(BIN)/python -m pytest tests/test_zoo.py tests/test_onnx.py --timeout 1800
	$(BIN)/python -m tools.promises --page-only

coverage: $(READY)  ## run the tests and print the statement and branch coverage of the package
	$(PYTEST) $(PARALLEL) --cov --cov-report term-missing:skip-covered

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## format the code and fix what can be fixed automatically
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## build the documentation into build/docs, run all examples, and check the site
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e ".[docs]"
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	$(BIN)/python -m pytest docs/check_site.py

pictures: $(READY)  ## draw the figures of docs/pictures.md by running it (those of the report need a browser)
	$(BIN)/python docs/pictures.py

promises: $(READY)  ## run the tests behind the promises of docs/trust.md (minutes) and write their table
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.promises

bench: $(READY)  ## time the engines and other methods, as ratios, and write docs/benchmarks.md
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e ".[bench]"
	$(BIN)/python -m benchmarks

studies: $(READY)  ## run the studies (each under an hour; interrupted ones resume) and write their pages
	$(BIN)/python -m studies simulated --docs docs
	$(BIN)/python -m studies mnist --docs docs
	$(BIN)/python -m studies real --docs docs
	$(BIN)/python -m studies decisions --docs docs
	$(BIN)/python -m studies coverage --docs docs
	$(BIN)/python -m tools.promises --page-only

study-vision: $(READY)  ## study hidden layers of trained vision networks (half an hour) and write its page
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e ".[study-vision]"
	$(BIN)/python -m studies vision --docs docs

study-yardsticks: $(READY)  ## compare with other methods on tasks that their authors defined (hours) and write its page
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e ".[study-yardsticks]"
	$(BIN)/python -m studies yardsticks --docs docs

studies-quick: $(READY)  ## run small versions of the studies that need no download, in minutes, into study_output
	$(BIN)/python -m studies simulated --quick
	$(BIN)/python -m studies mnist --quick
	$(BIN)/python -m studies decisions --quick
	$(BIN)/python -m studies coverage --quick
	$(BIN)/python -m studies yardsticks --quick

dist: $(READY)  ## build wheel and source distribution into dist
	$(BIN)/python $(PIP_INSTALL) build
	$(BIN)/python -m build

sbom: dist  ## write the bill of materials of the package and its tested dependencies into dist
	$(PYTHON) -m venv --clear --without-pip .venv-sbom
	$(BIN)/python -m pip --python .venv-sbom/$(PROGRAMS)/python install --quiet -c constraints.txt dist/*.whl
	$(BIN)/python $(PIP_INSTALL) cyclonedx-bom
	sed "s/^dynamic = .*/version = \"$$($(BIN)/python -c 'import geh_explain; print(geh_explain.__version__)')\"/" pyproject.toml > .venv-sbom/pyproject.toml
	$(BIN)/cyclonedx-py environment .venv-sbom/$(PROGRAMS)/python --pyproject .venv-sbom/pyproject.toml --mc-type library --output-reproducible -o dist/geh_explain.cdx.json

clean:  ## remove environments, caches and everything that was built
	rm -rf .venv .venv-min .venv-newest .venv-sbom .coverage demo_output study_output build dist docs/gallery *.egg-info

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e ".[dev]"
	touch $@
