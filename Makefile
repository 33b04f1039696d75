PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test test-long test-min test-zoo docs lint format bench pictures studies studies-quick clean

demo: $(READY)  ## train two small networks, explain them, draw the results
	$(BIN)/geh-explain demo

test: $(READY)  ## run the tests, docstring examples included
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

test-long: $(READY)  ## fuzzed files, kills, random networks, a soak, budgets of memory
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/long --timeout 3600

test-min:  ## run the tests with the oldest versions of what we depend on (torch stays as it is)
	$(PYTHON) -m venv .venv-min
	.venv-min/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-min.txt -e ".[vision]" pytest pytest-timeout hypothesis
	OMP_NUM_THREADS=1 .venv-min/bin/python -m pytest tests geh_explain --ignore tests/long --ignore tests/test_documentation.py

docs: $(READY)  ## build the documentation into build/docs, run all examples, and look at the site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	$(BIN)/python -m pytest docs/check_site.py

test-zoo: $(READY)  ## explain every classification family of torchvision, and write docs/architectures.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[zoo]"
	GEH_EXPLAIN_ZOO=1 $(BIN)/python -m pytest tests/test_zoo.py tests/test_onnx.py --timeout 1800

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## time the engines against their rivals, as ratios, and write docs/benchmarks.md
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	$(BIN)/python -m benchmarks

pictures: $(READY)  ## make the pictures of docs/pictures.md, by running it (with a browser for the page's)
	$(BIN)/python docs/pictures.py

studies: $(READY)  ## run the studies (each under an hour; they go on where they were interrupted) and write their pages
	$(BIN)/geh-explain study simulated --docs docs
	$(BIN)/geh-explain study mnist --docs docs
	$(BIN)/geh-explain study real --docs docs

studies-quick: $(READY)  ## run small versions of the studies that need no download, in minutes, into study_output
	$(BIN)/geh-explain study simulated --quick
	$(BIN)/geh-explain study mnist --quick

clean:
	rm -rf .venv .venv-min demo_output study_output build dist docs/gallery *.egg-info

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
