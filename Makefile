# Turbo Lab. Everything lives in .venv; nothing is installed outside this folder.
#   make lab      open JupyterLab (light environment, recorded results)
#   make course   run the course live on this machine; NOTEBOOKS="00 01" for a part
#   make test     every check that CI runs
#   make site     build the course as a site: site/_build/html
#   make clean    remove the environments and run folders

PYTHON ?= python3
NOTEBOOKS ?=
PY := .venv/bin/python
LIGHT := .venv-replay/bin/python
SITE := .venv-site/bin/python
ifeq ($(OS),Windows_NT)
PY := .venv/Scripts/python
LIGHT := .venv-replay/Scripts/python
SITE := .venv-site/Scripts/python
endif
QUICK := not engine and not live and not browser and not gpu
TOGETHER := -n auto --dist loadfile
ELSEWHERE := --ignore tests/notebooks --ignore tests/dist

.PHONY: course test lab site clean env env-test env-dev env-light env-site lint unit notebooks dist live engine browser

env:
	@$(PYTHON) scripts/install.py auto

# Both side by side: an installation mostly waits for the network and the disk.
env-test:
	@$(MAKE) --no-print-directory -j2 env-dev env-light

env-dev:
	@$(PYTHON) scripts/install.py auto --dev

env-light:
	@$(PYTHON) scripts/install.py replay --dev --venv .venv-replay

env-site:
	@$(PYTHON) scripts/install.py site

course: env
	@$(PY) -m turbo_lab.cli.main run $(NOTEBOOKS)

# A stamp is written when an installation has ended; without one it is gone on with.
lab:
	@$(if $(wildcard .venv/.turbo-lab-*),true,$(PYTHON) scripts/install.py replay)
	@$(PY) -m turbo_lab.cli.main lab

# Nothing is executed and nothing fetched: the notebooks are shown as they are committed.
site: env-site
	@$(SITE) site/build.py

# The order goes from seconds to minutes, so that the first failure comes early.
test: env-test lint unit notebooks dist engine live browser

lint:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/lint-imports
	$(PY) -m turbo_lab.cli.main course hygiene
	.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

# Tests marked "alone" judge times or start servers: they run one by one, after the others.
unit:
	$(PY) -m pytest -q tests $(ELSEWHERE) $(TOGETHER) -m "$(QUICK) and not alone"
	$(PY) -m pytest -q tests $(ELSEWHERE) -m "$(QUICK) and alone"

# In the light environment: no torch, no vLLM, recorded results.
notebooks:
	TURBO_LAB_MODE=replay $(LIGHT) -m pytest -q tests/unit tests/published tests/notebooks \
		$(TOGETHER) -m "$(QUICK) and not alone"

# Several processes, and hosts as network namespaces where the rights are there.
dist:
	$(PY) -m pytest -q tests/dist --durations 10 -m "$(QUICK)"

engine:
	$(PY) -m pytest -q tests/engine -n auto --dist worksteal --durations 25 \
		-m "engine and not gpu and not alone"
	$(PY) -m pytest -q tests/engine tests/unit/client --durations 25 \
		-m "engine and not gpu and alone"

live:
	$(PY) -m pytest -q tests -m live

browser: site
	$(PY) -m pytest -q tests/e2e -m browser
	$(PY) -m pytest -q tests/site -m browser $(TOGETHER)

clean:
	rm -rf .venv .venv-replay .venv-site site/_build runs build *.egg-info .pytest_cache .hypothesis .ruff_cache
