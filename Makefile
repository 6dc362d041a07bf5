# All commands for developers. They need Python 3.11 or newer, make, and Java 17 or newer for Spark. Everything else is
# downloaded, at the versions and hashes of requirements/, into .tools/ (uv) and .venv/ (the rest).

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV  := .venv
BIN   := $(VENV)/bin
UV    := .tools/uv/bin/uv
READY := $(VENV)/.ready
BYTECODE := $(VENV)/.bytecode

# The first interpreter on PATH that is new enough. `make PYTHON=/path/to/python` selects another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

# The interpreter of efo's own environment when that is made, by default PYTHON. It needs no pip, so one that `.ci/pythons` has
# unpacked will do.
VENV_PYTHON ?= .tools/uv/bin/python

# uv uses the system's certificates, as pip does, and only the Pythons named above.
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never
export UV_HTTP_TIMEOUT := 300
export UV_NO_PROGRESS := 1

.PHONY: help demo test check proofs proofs-test lint format lock image release clean docs

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## Run everything on this machine and compare output with input (ARGS="--help" for options)
	@$(BIN)/efo demo $(ARGS)

# loadfile: the tests of a file run in one process, because many share a server or a Spark session. Without those that
# `make docs` and `make proofs-test` run.
# Two processes per core, since many tests wait for servers, brokers and Spark. The order is that of tests/conftest.py.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# With bytecode, whatever the environment says: without it each of the hundreds of processes that tests start compiles
# all that it imports, for seconds.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(BYTECODE) ## Run all tests of the code (ARGS="tests/efo_service -k config" for some)
	@$(PYTEST) -m "not page and not runner" $(ARGS)

# In a new environment, each of the workers would compile all tests, and what they import, at the same time. What is wrong
# with a test file is told by `test` itself.
COLLECT := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --collect-only --quiet
$(BYTECODE): $(READY)
	@$(COLLECT) tests/efo >/dev/null & $(COLLECT) tests --ignore tests/efo >/dev/null; wait
	@touch $@

proofs-test: $(READY) ## Try the runners of proofs on small inputs
	@$(PYTEST) -m runner $(ARGS)

check: $(READY) ## Lint, and test the library's core: no Spark, servers or pages; a minute (ARGS="-k lease")
	@$(MAKE) --no-print-directory lint
	@$(PYTEST) -m "not e2e" $(CORE) $(ARGS)

CORE := tests/efo --ignore tests/efo/testing --ignore tests/efo/adapters

proofs: $(READY) ## List how efo is proven: each proof is a target of its own (make sim SEEDS=500)
	@$(BIN)/python -m proofs $(ARGS)

# Sphinx, which `test` does not need. The site needs nothing from elsewhere: build/site/index.html.
docs: $(READY) .tools/docs/.ready .tools/readers/.ready ## Run every example of the documentation, and build its site (ARGS="--no-run")
	@$(BIN)/python -m tools.docs --sphinx .tools/docs/bin/python $(ARGS)

lint: $(READY) ## Check style, formatting, types, import contracts, declared dependencies and native/
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry .
	@$(BIN)/python -m proofs.native.lint

format: $(READY) ## Format the code and apply automatic fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The engine is any that has the command line of Docker. make image-test builds by buildah, on a stand-in base. Only Docker's
# format of images has a health check, and others than docker build OCI's by default: docs/deployment.md.
ENGINE ?= docker
TARGET ?= service
# Without the credentials that a URL may have.
SOURCE ?= $(shell git remote get-url origin 2>/dev/null | sed 's|//[^/]*@|//|')
image: ## Build an image with a container engine (TARGET=spark|kafka ENGINE=podman ARGS="-t NAME")
	$(ENGINE) build $(if $(filter docker,$(notdir $(ENGINE))),,--format docker) --target $(TARGET) --build-arg VERSION="$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)" \
		--build-arg REVISION="$$(git describe --always --abbrev=40 --dirty --exclude '*')" --build-arg SOURCE="$(SOURCE)" \
		--build-arg CREATED="$$(git show -s --format=%cI HEAD)" $(if $(findstring -t ,$(ARGS)),,-t efo$(patsubst %,-%,$(filter-out service,$(TARGET)))) $(ARGS) .

# Keeps the locked versions that still satisfy the requirements. ARGS=--upgrade updates all.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links $(ARGS)

lock: $(UV) ## Update requirements/*.txt from pyproject.toml and *.in (ARGS=--upgrade for newer versions)
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) pyproject.toml --extra service --extra spark --extra kafka --extra postgres --extra redis \
		--extra mysql --extra grpc --extra avro --extra object-store --extra pydantic --extra zstd --extra testing --extra dev \
		-o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra service --extra kafka --extra postgres --extra redis --extra mysql --extra grpc \
		--extra object-store -c requirements/dev.txt -o requirements/service.txt
	$(COMPILE) pyproject.toml --extra service --extra kafka --extra postgres --extra redis --extra grpc \
		--no-emit-package pyarrow -c requirements/dev.txt -o requirements/kafka.txt
	$(COMPILE) pyproject.toml --extra service --extra cli --extra spark --extra kafka --extra grpc --extra zstd --extra object-store \
		-c requirements/dev.txt -o requirements/spark.txt
	$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/base.txt
	$(COMPILE) requirements/witnesses.in -o requirements/witnesses.txt
	$(COMPILE) requirements/peers.in -o requirements/peers.txt
	$(COMPILE) requirements/migration.in -o requirements/migration.txt
	$(COMPILE) --no-deps requirements/kcl-rs.in -o requirements/kcl-rs.txt
	$(COMPILE) --no-deps requirements/peers-kclpy.in -o requirements/peers-kclpy.txt
	$(COMPILE) pyproject.toml requirements/fuzz.in -c requirements/dev.txt -o requirements/fuzz.txt
	$(COMPILE) requirements/native.in -o requirements/native.txt
	$(COMPILE) requirements/audit.in -o requirements/audit.txt
	$(COMPILE) requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt
	$(COMPILE) requirements/delivery.in -o requirements/delivery.txt
	for spark in 3.5 4.0 4.1 4.2; do $(COMPILE) --no-deps requirements/spark-$$spark.in -o requirements/spark-$$spark.txt || exit 1; done
	$(COMPILE) requirements/readers.in -c requirements/dev.txt -o requirements/readers.txt
	$(COMPILE) requirements/ministack.in -o requirements/ministack.txt
	$(COMPILE) requirements/object-stores.in -o requirements/object-stores.txt
	$(COMPILE) pyproject.toml --extra service --extra object-store -c requirements/dev.txt -o requirements/cluster.txt
	$(COMPILE) requirements/cluster-client.in -c requirements/dev.txt -o requirements/cluster-client.txt
	$(COMPILE) --exclude-newer 2025-11-01 requirements/foreign-localstack.in -o requirements/foreign-localstack.txt

release: $(READY) ## Commit and tag a version, with its notes (VERSION=0.2.0)
	@$(BIN)/python -m tools.release $(VERSION)

clean: ## Delete everything that these targets create, including environments
	rm -rf $(VENV) .tools build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find efo service proofs tests tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(UV): requirements/uv.txt
	@test -n "$(PYTHON)" || { echo "efo needs Python 3.11 or newer, but none of python3, python3.13, python3.12 and" \
		"python3.11 on PATH is: install one, or run make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .tools/uv
	.tools/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(READY): $(UV) requirements/build.txt requirements/dev.txt pyproject.toml
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(VENV_PYTHON) $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/build.txt
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --no-build-isolation -r requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

include proofs/proofs.mk
