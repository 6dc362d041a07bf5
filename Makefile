# Everything a developer runs. Needs Python 3.11 or newer, make, and Java 17 or newer for Spark; the rest is
# fetched, at the versions and hashes of requirements/, into .tools/ (uv) and .venv/ (everything else).

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV  := .venv
BIN   := $(VENV)/bin
UV    := .tools/uv/bin/uv
READY := $(VENV)/.ready

# The first interpreter on PATH that is new enough; `make PYTHON=/path/to/python` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

# The system's certificates, so that uv works where pip does; never another Python than the one found.
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never
export UV_HTTP_TIMEOUT := 300
export UV_NO_PROGRESS := 1

.PHONY: help demo test sim bench-core bench-fake bench-relay log-e2e fuzz scenarios witnesses kcl-interop kafka-e2e kafka-install foreign foreign-install dynamodb-local ministack conformance failover lint format lock clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## Run the whole job on this machine and compare what came out (ARGS="--help" for options)
	@$(BIN)/efo demo $(ARGS)

# A file's tests stay together: many share a server or a Spark session.
test: $(READY) ## Run all tests (ARGS="tests/service -k config" for some)
	@$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

# One seed is one world of consumers, faults, crashes and reshards, under virtual time. A failing one repeats exactly.
SEEDS ?= 200
sim: $(READY) ## Simulate whole consumers (SEEDS=500; ARGS="--seed 7" repeats one world and tells its story)
	@$(BIN)/python -m proofs.simulation --seeds $(SEEDS) $(ARGS)

bench-core: $(READY) ## Measure renewal, back-pressure and the data path; some minutes (ARGS="--help" for options)
	@$(BIN)/python -m proofs.benchmarks.bench_core $(ARGS)

bench-fake: $(READY) ## Measure what the fake gives under load, and what it costs (ARGS="--help" for options)
	@$(BIN)/python -m proofs.benchmarks.bench_fake $(ARGS)

# Coverage-guided: atheris has wheels for CPython 3.11 to 3.13 on Linux for x86-64. Not part of `test`, which feeds the
# same properties by Hypothesis.
FUZZ := .tools/fuzz
SECONDS ?= 60
fuzz: $(FUZZ)/.ready ## Fuzz what reads foreign bytes, SECONDS=60 for each target (ARGS="http2", ARGS="--help")
	@$(FUZZ)/bin/python -m proofs.fuzz --seconds $(SECONDS) $(ARGS)

bench-relay: $(READY) ## Measure the relay and Spark over its log; some minutes (ARGS="--help" for options)
	@$(BIN)/python -m proofs.benchmarks.bench_relay $(ARGS)

log-e2e: $(READY) ## Kill relays and Spark twenty times while records flow, and compare what landed (ARGS="--help")
	@$(BIN)/python -m proofs.e2e.log $(ARGS)

scenarios: $(READY) ## Run the tests of the situations of docs/scenarios.md, as a table (ARGS="G45 G60" for some)
	@$(BIN)/python tools/scenarios.py $(ARGS)

# Clients that others wrote, against the fake. Needs, each for its own: Java 17 and Maven, Go, Node. Not part of `test`.
WITNESSES := .tools/witnesses/python-venv
witnesses: $(READY) $(WITNESSES)/.ready ## Let boto3, KCL and the SDKs of Go and JavaScript read the fake (ARGS="boto3")
	@$(BIN)/python -m proofs.interop.clients $(ARGS)

# A Kafka broker, and Spark's modules for Kafka and Avro; without them their tests are skipped by name. Needs Java 17 and Maven.
KAFKA := .tools/kafka
kafka-e2e: $(READY) $(KAFKA)/.ready ## Kill relays, a Kafka broker and Spark twenty times, and compare (ARGS="--help")
	@$(BIN)/python -m proofs.e2e.kafka $(ARGS)

kafka-install: $(KAFKA)/.ready ## Fetch a Kafka broker and Spark's modules for Kafka and Avro, for their tests

# Servers that others wrote, read by efo. Needs, for two of them, Node. Not part of `test`, but for a short form.
FOREIGN := .tools/foreign
foreign: $(READY) ## Let efo read kinesis-mock, MiniStack and LocalStack (ARGS="ministack", ARGS="--help")
	@$(BIN)/python -m proofs.interop.servers $(ARGS)

foreign-install: $(READY) ## Fetch these servers, for their tests
	@$(BIN)/python -m proofs.interop.servers --install $(ARGS)

# The servers that the tests of the DynamoDB lease store run against; without them these are skipped by name.
DYNAMODB_LOCAL := .tools/dynamodb-local
MINISTACK := .tools/ministack
dynamodb-local: $(DYNAMODB_LOCAL)/.ready ## Fetch DynamoDB Local, for tests (needs a JDK and Maven)

ministack: $(MINISTACK)/.ready ## Fetch MiniStack, for tests

kcl-interop: $(READY) $(DYNAMODB_LOCAL)/.ready ## Let KCL and efo share an application: one lease table; some 5 minutes
	@$(BIN)/python -m proofs.interop.kcl $(ARGS)

conformance: $(READY) ## Show what each lease store does with the one suite (ARGS="--store redis")
	@$(BIN)/python -m tools.conformance $(ARGS)

failover: $(READY) ## Measure how soon leases are taken over after a stop and a crash; some 5 minutes (ARGS="--store redis")
	@$(BIN)/python -m proofs.benchmarks.failover $(ARGS)

lint: $(READY) ## Check style, formatting, types, the rooms' imports and the declared dependencies
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry .

format: $(READY) ## Format the code and fix what can be fixed by rule
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Versions already in the files are kept where they still fit; ARGS=--upgrade renews them all.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links $(ARGS)

lock: $(UV) ## Renew requirements/*.txt from pyproject.toml (ARGS=--upgrade for newer versions)
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) pyproject.toml --extra service --extra spark --extra kafka --extra postgres --extra redis \
		--extra testing --extra dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra service --extra kafka --extra postgres --extra redis -c requirements/dev.txt \
		-o requirements/service.txt
	$(COMPILE) requirements/witnesses.in -o requirements/witnesses.txt
	$(COMPILE) pyproject.toml requirements/fuzz.in -c requirements/dev.txt -o requirements/fuzz.txt
	$(COMPILE) requirements/ministack.in -o requirements/ministack.txt
	$(COMPILE) --exclude-newer 2025-11-01 requirements/foreign-localstack.in -o requirements/foreign-localstack.txt

clean: ## Remove everything that was made here, environments included
	rm -rf $(VENV) .tools build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find efo service proofs tests tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(UV): requirements/uv.txt
	@test -n "$(PYTHON)" || { echo "efo needs Python 3.11 or newer: none of python3, python3.13, python3.12 and" \
		"python3.11 on PATH is. Install one, or say where: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv .tools/uv
	.tools/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(READY): $(UV) requirements/build.txt requirements/dev.txt pyproject.toml
	@test -x $(BIN)/python || $(UV) venv --quiet --python .tools/uv/bin/python $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/build.txt
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --no-build-isolation -r requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(WITNESSES)/.ready: $(UV) requirements/witnesses.txt
	@test -x $(WITNESSES)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(WITNESSES)
	$(UV) pip install --quiet --python $(WITNESSES)/bin/python --require-hashes -r requirements/witnesses.txt
	@touch $@

$(FUZZ)/.ready: $(UV) requirements/fuzz.txt
	@test -x $(FUZZ)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(FUZZ)
	$(UV) pip install --quiet --python $(FUZZ)/bin/python --require-hashes -r requirements/fuzz.txt
	@touch $@

# `--strict-checksums`: what does not match the repository's checksums is refused.
$(DYNAMODB_LOCAL)/.ready: proofs/local_servers/dynamodb_local/pom.xml
	rm -rf $(DYNAMODB_LOCAL)
	mvn --quiet --batch-mode --no-transfer-progress --strict-checksums -f $< dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(DYNAMODB_LOCAL)
	@touch $@

$(MINISTACK)/.ready: $(UV) requirements/ministack.txt
	@test -x $(MINISTACK)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(MINISTACK)
	$(UV) pip install --quiet --python $(MINISTACK)/bin/python --require-hashes -r requirements/ministack.txt
	@touch $@

$(FOREIGN)/localstack/.ready: $(UV) requirements/foreign-localstack.txt
	@test -x $(@D)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(@D)
	$(UV) pip install --quiet --python $(@D)/bin/python --require-hashes -r requirements/foreign-localstack.txt
	@touch $@

$(FOREIGN)/kinesis-mock/.ready $(FOREIGN)/localstack-kinesis/.ready: $(FOREIGN)/%/.ready: proofs/interop/servers/%/package-lock.json
	mkdir -p $(@D)
	cp proofs/interop/servers/$*/package.json proofs/interop/servers/$*/package-lock.json $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(KAFKA)/.ready: proofs/e2e/kafka/pom.xml
	rm -rf $(KAFKA)
	mvn --quiet --batch-mode --no-transfer-progress --strict-checksums -f $< package
	@touch $@
