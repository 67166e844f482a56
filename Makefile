# The README's commands. Each builds .venv itself; nothing has to be done by hand.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test venv clean

demo: .venv/demo.stamp
	$(BIN)/unida demo

test: .venv/dev.stamp
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/pytest

venv: .venv/dev.stamp

.venv/bin/python:
	$(PYTHON) -m venv .venv

# constraints.txt keeps torch at the build this project is tested with.
.venv/%.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$*]'
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info
