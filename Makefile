# `make demo` and `make test` do everything from an empty machine with Python, make and git.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready

# Linux and Windows wheels on the public index carry CUDA; the CPU build has an index of its own.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

CHROMIUM     ?= chromium
CHROMEDRIVER ?= chromedriver
DEMO_RUNS = tesseract-full_trim tesseract-full_krum fedsgd-full_trim fedsgd-none
PHOTO = $(CHROMIUM) --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1880 \
	--virtual-time-budget=8000 --screenshot=$(CURDIR)

.PHONY: help install demo bench test system browser pictures lint format clean

help: ## show what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

install: $(READY) ## create .venv and install everything, exact versions

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name it with: make PYTHON=/path/to/python3"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing torch (CPU build) and the rest; a few minutes the first time"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch 2>/dev/null \
	  || $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --extra-index-url $(TORCH_INDEX) torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# a peer that the tests compare with; its dependencies (torchvision) are not needed for that
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps byzfl
	@touch $(READY)

demo: $(READY) ## train with and without attack and defence; a table and two pictures
	$(BIN)/tesseract-fl demo

test: $(READY) ## run the tests
	$(BIN)/pytest -n auto -m 'not system and not browser'

system: $(READY) ## run real Flower processes on loopback: TLS, node keys, faults, kills; about ten minutes
	timeout 1200 $(BIN)/pytest tests/system -m system

browser: $(READY) ## drive the report and the live page in a headless Chromium (Debian: apt-get install chromium chromium-driver)
	@command -v $(CHROMIUM) >/dev/null && command -v $(CHROMEDRIVER) >/dev/null \
	  || { echo "Chromium and its driver are needed: apt-get install chromium chromium-driver"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	CHROMIUM=$(CHROMIUM) CHROMEDRIVER=$(CHROMEDRIVER) $(BIN)/pytest tests/browser -m browser

pictures: $(READY) ## make the pictures of the README from the demonstration; needs Chromium
	$(BIN)/tesseract-fl demo
	$(BIN)/tesseract-fl report $(addprefix demo/,$(DEMO_RUNS)) --out demo/report.html
	$(PHOTO)/docs/images/report.png --blink-settings=preferredColorScheme=1 file://$(CURDIR)/demo/report.html
	$(PHOTO)/docs/images/report-dark.png --blink-settings=preferredColorScheme=0 file://$(CURDIR)/demo/report.html

bench: $(READY) ## time and memory, side by side with byzfl, Flower and the usual loop; about twenty minutes, on a quiet machine
	$(BIN)/python benchmarks/rules.py --curves --json benchmarks/rules.json --plot benchmarks/rules.png
	$(BIN)/python benchmarks/round.py --json benchmarks/round.json
	$(BIN)/python benchmarks/flower_strategy.py

lint: $(READY) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
