# The README's commands. Each builds .venv itself; nothing has to be done by hand.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo methods-demo docs test test-fast venv clean

demo: .venv/demo.stamp
	$(BIN)/unida demo

# Every method on the demo's digits, both ways, three seeds: about an hour on two cores.
methods-demo: .venv/demo.stamp
	$(BIN)/unida bench digits --methods all,ablation,spa-ovanet --seeds 3 --workers 2 --out runs/methods-demo
	cp runs/methods-demo/results.jsonl.gz benchmarks/results/digits/scratch/methods/
	$(BIN)/python benchmarks/scripts/tables.py

# The site, in site/; fails on a broken link.
docs: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: .venv/dev.stamp
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/ruff format --check src tests benchmarks examples docs
	$(BIN)/mypy
	$(BIN)/pytest -n $(or $(JOBS),2) --dist loadfile

# Leaves out what trains for long, starts processes or drives a browser: under two minutes.
test-fast: .venv/dev.stamp
	$(BIN)/pytest -n $(or $(JOBS),2) --dist loadfile -m "not slow"

venv: .venv/dev.stamp

.venv/bin/python:
	$(PYTHON) -m venv .venv

# constraints.txt keeps torch and the tools at the builds this project is tested with.
.venv/%.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$*]'
	touch $@

clean:
	rm -rf .venv build dist src/*.egg-info
