# `make book` builds the site, `make test` checks everything; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
TORCH ?= 1
PORT ?= 8000
BIN := .venv/bin
PINS := requirements.txt constraints.txt pyproject.toml
# pip's progress, one line for each package it fetches.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --progress-bar off
BRIEF := awk '/^ *(Collecting|Processing) / { print "    " $$2; fflush() } /^Installing / { print "    installing" }'
PIP_FAILED := { echo "make: pip failed (above); check the network, then run the same command again"; exit 1; }
# What `make quick` runs: files of tests that need no site, no browser and no torch, and little time.
QUICK := formulas mutation catalogue counts config files layers timing silicon package checklist report notebooks pages kinds nonsense steps_by_hand
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2
TEST_STAMP := .venv/.test$(if $(filter 0,$(TORCH)),,-torch)

.PHONY: help book quick test weekly lint serve clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile
	@echo "options: PYTHON=python3.12 (for a new .venv), TORCH=0 (test without torch), PORT=8000 (serve)"

book: .venv/.book  ## build the site into _build/html
	@$(BIN)/python scripts/build_book.py

quick: .venv/.test  ## the inner loop, half a minute: tests of formulas, models, times and reports; no site, browser or torch
	@$(PYTEST) -q -m "not alone and not weekly" -k "not torch and not page_is_for_everyone" $(QUICK:%=tests/test_%.py)

# Two workers, a thread each: with more, threads wait for each other. Then what needs the clock to itself.
test: lint book  ## lint, build the site, run every test but the weekly ones (TORCH=0: without torch, a large download)
	@export HWDESIGN_REQUIRE_SITE=1; failed=0; \
	  $(PYTEST) -m "not alone and not weekly" --doctest-modules hwdesign tests || failed=1; \
	  $(BIN)/python -m pytest -m "alone and not weekly" $$(grep -l "mark.alone" tests/test_*.py) || failed=1; exit $$failed

weekly: $(TEST_STAMP)  ## what takes minutes: the weekly tests, every notebook in Colab's environment, and mutants of the code that the tests must find
	@$(PYTEST) -m weekly tests
	@HWDESIGN_REQUIRE_COLAB=1 $(PYTEST) tests/test_colab.py
	@$(BIN)/python scripts/mutate.py --count 50 --seed $$(date +%G%V)

lint: $(TEST_STAMP)  ## check the code's style
	@$(BIN)/ruff check . || { echo "make lint: '$(BIN)/ruff check --fix .' mends most of these"; exit 1; }

serve:  ## show the built site at http://127.0.0.1:8000
	@test -f _build/html/index.html || { echo "make serve: nothing built yet, run 'make book' first"; exit 1; }
	@echo "http://127.0.0.1:$(PORT)  (Ctrl-C stops)"; $(PYTHON) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

clean:  ## remove the environment and everything built
	rm -rf .venv _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "make: '$(PYTHON)' is not Python 3.11, 3.12 or 3.13; name one: make book PYTHON=python3.12"; exit 1; }
	@echo "==> create .venv"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "make: no venv module; on Debian: apt install python3-venv"; exit 1; }

# A stamp is older than its files when they changed; pip then installs only the difference.
.venv/.book: .venv/bin/python $(PINS)
	@echo "==> install the book's requirements (about 90 s the first time)"
	@$(PIP) -r requirements.txt | $(BRIEF) || $(PIP_FAILED)
	@$(PIP) --no-deps --no-build-isolation -e . | $(BRIEF) || $(PIP_FAILED)
	@touch $@

.venv/.test: .venv/.book requirements-test.txt
	@echo "==> install the test tools"
	@$(PIP) -r requirements-test.txt | $(BRIEF) || $(PIP_FAILED)
	@touch $@

.venv/.test-torch: .venv/.test requirements-torch.txt
	@echo "==> install torch (large; 'make test TORCH=0' does without)"
	@$(PIP) -r requirements-torch.txt | $(BRIEF) || { echo "make: pip failed (above); 'make test TORCH=0' does without torch"; exit 1; }
	@touch $@
