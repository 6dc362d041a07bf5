# All commands for developers. They need Python 3.11 or newer, make, and Java 17 or newer for Spark. Everything else is
# downloaded, at the versions and hashes of requirements/, into .tools/ (uv) and .venv/ (the rest).

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV  := .venv
BIN   := $(VENV)/bin
UV    := .tools/uv/bin/uv
READY := $(VENV)/.ready

# The first interpreter on PATH that is new enough. `make PYTHON=/path/to/python` selects another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

# uv uses the system's certificates, as pip does, and only the Python found above.
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never
export UV_HTTP_TIMEOUT := 300
export UV_NO_PROGRESS := 1

.PHONY: help demo test sim bench bench-quick bench-core bench-fake bench-relay log-e2e kinesis-source-e2e object-store-e2e object-stores cluster-e2e cluster-install tables-e2e tables-install fuzz scenarios api witnesses peers peers-install kcl-interop kcl-multilang kafka-e2e kafka-install foreign foreign-install truth docs dynamodb-local ministack conformance failover lint format lock clean compat audit soak mutants web-test image image-test manifests dashboards parity edges attacks bench-polling bench-producer bench-doors migrate-test spark-parity

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## Run everything on this machine and compare output with input (ARGS="--help" for options)
	@$(BIN)/efo demo $(ARGS)

# loadfile: the tests of a file run in one process, because many share a server or a Spark session.
test: $(READY) ## Run all tests (ARGS="tests/efo_service -k config" for some)
	@$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

# A seed determines a simulation world: consumers, faults, crashes and reshards, in virtual time. So failures repeat.
SEEDS ?= 200
sim: $(READY) ## Simulate whole consumers (SEEDS=500; ARGS="--seed 7" repeats one world and prints its story)
	@$(BIN)/python -m proofs.simulation --seeds $(SEEDS) $(ARGS)

# Not part of `test`, which tests the runner. What survives, and why: docs/proofs.md.
SEED ?= 1
SAMPLE ?= 100
mutants: $(READY) ## Change the code in small ways, and see whether a test notices (SEED=1 SAMPLE=100 ARGS="--help")
	@$(BIN)/python -m proofs.mutants --seed $(SEED) --sample $(SAMPLE) $(ARGS)

bench: $(READY) ## Measure efo, each figure beside its target; a quarter of an hour (ARGS="--only data-path", ARGS="--help")
	@$(BIN)/python -m proofs.benchmarks $(ARGS)

bench-quick: $(READY) ## Compare efo with fixed clients, and with the kept ratios; under three minutes (ARGS="--help")
	@$(BIN)/python -m proofs.benchmarks.quick $(ARGS)

bench-polling: $(READY) ## Compare the CPU time of polling and of fan-out; a minute (ARGS="--help" for options)
	@$(BIN)/python -m proofs.benchmarks.polling $(ARGS)

bench-core: $(READY) ## Measure renewal, back-pressure and the data path; takes minutes (ARGS="--help" for options)
	@$(BIN)/python -m proofs.benchmarks.core $(ARGS)

bench-doors: $(READY) ## Measure the CPU time of a batch through each door: trio, asyncio, synchronous (ARGS="--help")
	@$(BIN)/python -m proofs.benchmarks.doors $(ARGS)

bench-fake: $(READY) ## Measure throughput and resource usage of the fake under load (ARGS="--help" for options)
	@$(BIN)/python -m proofs.benchmarks.fake $(ARGS)

# Coverage-guided. atheris has wheels for CPython 3.11 to 3.13 on Linux for x86-64. Not part of `test`, which checks the
# same properties with Hypothesis.
FUZZ := .tools/fuzz
SECONDS ?= 60
fuzz: $(FUZZ)/.ready ## Fuzz the parsers of received bytes, SECONDS=60 for each target (ARGS="http2", ARGS="--help")
	@PYTHONPATH=service $(FUZZ)/bin/python -m proofs.fuzz --seconds $(SECONDS) $(ARGS)

bench-producer: $(READY) ## Measure what a producer puts into the fake per second of CPU time, as JSON (ARGS="--help")
	@$(BIN)/python -m proofs.benchmarks.producer $(ARGS)

bench-relay: $(READY) ## Measure the relay, and Spark on its log; takes minutes (ARGS="--help" for options)
	@$(BIN)/python -m proofs.benchmarks.relay $(ARGS)

log-e2e: $(READY) ## Kill relays and Spark twenty times under load, and compare the output (ARGS="--help")
	@$(BIN)/python -m proofs.e2e.log $(ARGS)

kinesis-source-e2e: $(READY) ## Kill the driver of format("kinesis") and its planners, and compare the output (ARGS="--help")
	@$(BIN)/python -m proofs.e2e.kinesis_source $(ARGS)

# moto, versitygw and Azurite: they need Go and Node. `test` includes their conformance, if they are downloaded.
OBJECT_STORES := .tools/object-stores
object-store-e2e: $(READY) $(OBJECT_STORES)/.ready ## Kill relays while requests to real object stores fail, and compare the log (ARGS="versitygw --kills 20")
	@$(BIN)/python -m proofs.e2e.object_store $(ARGS)

object-stores: $(OBJECT_STORES)/.ready ## Download object stores, for tests

KAFKA := .tools/kafka
# Into Delta and Iceberg, each on the newest Spark that it is built for. Needs PostgreSQL, for Iceberg's catalog.
TABLES := .tools/tables
tables-e2e: $(READY) $(TABLES)/.ready $(OBJECT_STORES)/.ready $(KAFKA)/.ready ## Kill Spark while it writes tables of Delta and Iceberg on an S3 server, and change their schemas (ARGS="--only delta")
	@$(BIN)/python -m proofs.e2e.tables $(ARGS)

tables-install: $(TABLES)/.ready ## Download Spark 4.2 and 4.1, Delta and Iceberg, for `make tables-e2e` (1 GB)

# It needs the Pythons of cluster-install, which have no efo, and versitygw.
CLUSTER := .tools/cluster
cluster-e2e: $(READY) $(OBJECT_STORES)/.ready $(CLUSTER)/.ready ## Read the log on a standalone Spark cluster without efo, kill workers, and compare (ARGS="--help")
	@$(BIN)/python -m proofs.e2e.cluster $(ARGS)

cluster-install: $(CLUSTER)/.ready ## Make the Pythons of `make cluster-e2e`

parity: $(READY) ## Show what users of other libraries can do: run the tests of docs/parity.md, and print a table (ARGS="-k lease")
	@$(BIN)/python -m tools.parity $(ARGS)

scenarios: $(READY) ## Run the tests of the scenarios in docs/scenarios.md, and print a table (ARGS="G45 G60" for some)
	@$(BIN)/python tools/scenarios.py $(ARGS)

# With efo and its own dependencies alone: no extra is installed.
BASE := .tools/base
api: $(BASE)/.ready ## Print the public names of efo with their meanings, from a base install (ARGS="--json")
	@$(BASE)/bin/python tools/api.py $(ARGS)

# Third-party clients on the fake. They need Java 17 and Maven, Go, Node; without its toolchain, a client is left out by
# name, and the exit status is 69. Not part of `test`.
WITNESSES := .tools/witnesses/python-venv
witnesses: $(READY) $(WITNESSES)/.ready ## Let boto3, KCL and the SDKs for Go and JavaScript read the fake (ARGS="boto3")
	@$(BIN)/python -m proofs.interop.clients $(ARGS)

# A Kafka broker, and Spark's modules for Kafka and Avro. Without them, their tests are skipped by name. Needs Java 17
# and Maven.
kafka-e2e: $(READY) $(KAFKA)/.ready ## Kill relays, a Kafka broker and Spark twenty times, and compare the output (ARGS="--help")
	@$(BIN)/python -m proofs.e2e.kafka $(ARGS)

spark-parity: $(READY) $(KAFKA)/.ready ## Compare the options of Spark's Kafka source on a broker and on the log (ARGS="--help")
	@$(BIN)/python -m proofs.spark_parity $(ARGS)

kafka-install: $(KAFKA)/.ready ## Download a Kafka broker and Spark's modules for Kafka and Avro, for tests

# Third-party servers, read by efo. Two of them need Node. `test` includes a short form.
FOREIGN := .tools/foreign
foreign: $(READY) ## Let efo read kinesis-mock, MiniStack and LocalStack (ARGS="ministack", ARGS="--help")
	@$(BIN)/python -m proofs.interop.servers $(ARGS)

foreign-install: $(READY) ## Download the servers of `make foreign`, for tests
	@$(BIN)/python -m proofs.interop.servers --install $(ARGS)

# Against AWS it costs money, so it also needs ARGS=--accept-cost. Not part of `test`.
truth: $(READY) ## Compare the fake with any endpoint, call by call (ENDPOINT=https://..., ARGS="--help")
	@$(BIN)/python -m proofs.interop.truth $(ENDPOINT) $(ARGS)

# Sphinx, which `test` does not need. The site needs nothing from elsewhere: build/site/index.html.
DOCS := .tools/docs
docs: $(READY) $(DOCS)/.ready ## Run every example of the documentation, and build its site (ARGS="--no-run")
	@$(BIN)/python -m tools.docs --sphinx $(DOCS)/bin/python $(ARGS)

# The servers for the tests of the DynamoDB lease store. Without them, these tests are skipped by name.
DYNAMODB_LOCAL := .tools/dynamodb-local
MINISTACK := .tools/ministack
dynamodb-local: $(DYNAMODB_LOCAL)/.ready ## Download DynamoDB Local, for tests (needs a JDK and Maven)

ministack: $(MINISTACK)/.ready ## Download MiniStack, for tests

# efo beside other consumers. They need Java 17 and Maven, or Go; a peer without its toolchain is left out by name. Not
# part of `test`, and for a machine that does nothing else.
PEERS := .tools/peers/python-venv
KCLPY := .tools/peers/kclpy
peers: peers-install ## Measure efo beside KCL, AWS's SDKs and others; takes hours (ARGS="kcl boto3", ARGS="--help")
	@$(BIN)/python -m proofs.peers $(ARGS)

# amazon_kclpy only where Java and Maven are.
peers-install: $(READY) $(PEERS)/.ready $(if $(shell command -v mvn),$(DYNAMODB_LOCAL)/.ready $(KCLPY)/.ready) ## Download the Python peers, and DynamoDB Local

# Real libraries on the fake. A case whose toolchain or server is missing is left out by name, and the exit status is 69.
# Not part of `test`, which migrates rows in the libraries' schemas.
MIGRATION := .tools/migration/python-venv
migrate-test: peers-install $(MIGRATION)/.ready ## Move applications of other libraries to efo and back; half an hour (ARGS="harlow-redis kcl-3")
	@$(BIN)/python -m proofs.migration $(ARGS)

# amazon_kclpy and aws-kcl, unchanged. The stories with Java take some ten minutes each.
MULTILANG := .tools/multilang/node
KCL_RS := .tools/multilang/python
kcl-multilang: $(READY) $(DYNAMODB_LOCAL)/.ready $(KCLPY)/.ready $(MULTILANG)/.ready $(KCL_RS)/.ready ## Run processors of amazon_kclpy and aws-kcl without Java, and beside it (ARGS="lives --client aws-kcl")
	@$(BIN)/python -m proofs.interop.multilang $(ARGS)

kcl-interop: $(READY) $(DYNAMODB_LOCAL)/.ready ## Let KCL and efo share an application and its lease table; about 5 minutes
	@$(BIN)/python -m proofs.interop.kcl $(ARGS)

compat: $(READY) ## Read the logs, leases and positions that earlier versions wrote (ARGS="--write" adds this version's)
	@$(BIN)/python -m proofs.compatibility $(ARGS)

MINUTES ?= 60
soak: $(READY) ## Run a service under load, faults and reshards; nothing may grow (MINUTES=60, ARGS="--help")
	@$(BIN)/python -m proofs.soak --minutes $(MINUTES) $(ARGS)

# Not part of `test`, which has each of these situations at the lowest level that shows it.
edges: $(READY) ## Try efo in situations that users report: credentials, clocks, proxies, recreated streams (ARGS="--help")
	@$(BIN)/python -m proofs.edges $(ARGS)

attacks: $(READY) ## Attack efo's port, decoders and neighbours, and see that nothing stops, blocks or leaks (ARGS="--help")
	@$(BIN)/python -m proofs.attacks $(ARGS)

# In Debian's chromium; without it, the exit status is 69. `test` has a short form. Pictures: var/web-test.
web-test: $(READY) ## Look at the page of a real service in a real browser, with 4 and with 1,000 shards (ARGS="--help")
	@$(BIN)/python -m proofs.web $(ARGS)

# A real Prometheus and a real OpenTelemetry Collector, which it builds. Without Prometheus, Go or Java the exit status is
# 69. Not part of `test`, which checks the queries.
dashboards: $(READY) ## Show that each panel has data and each alert fires in its fault; seven minutes (ARGS="--help")
	@$(BIN)/python -m proofs.dashboards $(ARGS)

AUDIT := .tools/audit
audit: $(READY) $(AUDIT)/.ready ## Check licences and known vulnerabilities of the locked dependencies; write an SBOM (ARGS="--sbom PATH")
	@$(BIN)/python -m proofs.audit $(ARGS)

# The engine is any that has the command line of Docker. Nobody has built the images with one yet: docs/deployment.md.
ENGINE ?= docker
TARGET ?= service
# Without the credentials that a URL may have.
SOURCE ?= $(shell git remote get-url origin 2>/dev/null | sed 's|//[^/]*@|//|')
image: ## Build an image with a container engine (TARGET=spark ENGINE=podman ARGS="-t NAME")
	$(ENGINE) build --target $(TARGET) --build-arg VERSION="$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)" \
		--build-arg REVISION="$$(git describe --always --abbrev=40 --dirty --exclude '*')" --build-arg SOURCE="$(SOURCE)" \
		--build-arg CREATED="$$(git show -s --format=%cI HEAD)" $(if $(findstring -t ,$(ARGS)),,-t efo$(if $(filter spark,$(TARGET)),-spark)) $(ARGS) .

DELIVERY := .tools/delivery
image-test: $(READY) $(DELIVERY)/.ready ## Run the Dockerfile's steps in an empty directory, and what the images run; no engine needed (ARGS="--help")
	@$(BIN)/python -m proofs.image $(ARGS)

MANIFESTS := .tools/manifests
manifests: $(READY) $(DELIVERY)/.ready $(MANIFESTS)/.ready ## Build, check and lint the Kubernetes manifests and IAM policies (ARGS="--write DIRECTORY")
	@$(BIN)/python -m proofs.manifests $(ARGS)

# Downloads the servers of the stores that it needs. PostgreSQL and Redis are the system's: .ci/servers.
conformance: $(READY) ## Run the conformance suite on each lease store (ARGS="--store redis")
	@$(BIN)/python -m tools.conformance $(ARGS)

failover: $(READY) ## Measure the time to take over leases after a stop and a crash; about 5 minutes (ARGS="--store redis")
	@$(BIN)/python -m proofs.benchmarks.failover $(ARGS)

lint: $(READY) ## Check style, formatting, types, import contracts and declared dependencies
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/deptry .

format: $(READY) ## Format the code and apply automatic fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

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
	$(COMPILE) pyproject.toml --extra service --extra spark --extra kafka --extra grpc --extra zstd --extra object-store \
		-c requirements/dev.txt -o requirements/spark.txt
	$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/base.txt
	$(COMPILE) requirements/witnesses.in -o requirements/witnesses.txt
	$(COMPILE) requirements/peers.in -o requirements/peers.txt
	$(COMPILE) requirements/migration.in -o requirements/migration.txt
	$(COMPILE) --no-deps requirements/kcl-rs.in -o requirements/kcl-rs.txt
	$(COMPILE) --no-deps requirements/peers-kclpy.in -o requirements/peers-kclpy.txt
	$(COMPILE) pyproject.toml requirements/fuzz.in -c requirements/dev.txt -o requirements/fuzz.txt
	$(COMPILE) requirements/audit.in -o requirements/audit.txt
	$(COMPILE) requirements/docs.in -c requirements/dev.txt -o requirements/docs.txt
	$(COMPILE) requirements/delivery.in -o requirements/delivery.txt
	$(COMPILE) --no-deps requirements/tables-spark-4.2.in -o requirements/tables-spark-4.2.txt
	$(COMPILE) --no-deps requirements/tables-spark-4.1.in -o requirements/tables-spark-4.1.txt
	$(COMPILE) requirements/ministack.in -o requirements/ministack.txt
	$(COMPILE) requirements/object-stores.in -o requirements/object-stores.txt
	$(COMPILE) pyproject.toml --extra service --extra object-store -c requirements/dev.txt -o requirements/cluster.txt
	$(COMPILE) requirements/cluster-client.in -c requirements/dev.txt -o requirements/cluster-client.txt
	$(COMPILE) --exclude-newer 2025-11-01 requirements/foreign-localstack.in -o requirements/foreign-localstack.txt

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
	@test -x $(BIN)/python || $(UV) venv --quiet --python .tools/uv/bin/python $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/build.txt
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --no-build-isolation -r requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(BASE)/.ready: $(UV) requirements/build.txt requirements/base.txt pyproject.toml
	@test -x $(BASE)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(BASE)
	$(UV) pip install --quiet --python $(BASE)/bin/python --require-hashes -r requirements/build.txt
	$(UV) pip install --quiet --python $(BASE)/bin/python --require-hashes --no-build-isolation -r requirements/base.txt
	$(UV) pip install --quiet --python $(BASE)/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

$(WITNESSES)/.ready: $(UV) requirements/witnesses.txt
	@test -x $(WITNESSES)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(WITNESSES)
	$(UV) pip install --quiet --python $(WITNESSES)/bin/python --require-hashes -r requirements/witnesses.txt
	@touch $@

$(PEERS)/.ready: $(UV) requirements/build.txt requirements/peers.txt
	@test -x $(PEERS)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(PEERS)
	$(UV) pip install --quiet --python $(PEERS)/bin/python --require-hashes -r requirements/build.txt
	$(UV) pip install --quiet --python $(PEERS)/bin/python --require-hashes -r requirements/peers.txt
	@touch $@

$(MIGRATION)/.ready: $(UV) requirements/migration.txt
	@test -x $(MIGRATION)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(MIGRATION)
	$(UV) pip install --quiet --python $(MIGRATION)/bin/python --require-hashes -r requirements/migration.txt
	@touch $@

$(MULTILANG)/.ready: proofs/interop/multilang/node/package-lock.json proofs/interop/multilang/node/processor.js
	$(NEED_NODE)
	mkdir -p $(@D)
	cp proofs/interop/multilang/node/package.json proofs/interop/multilang/node/package-lock.json \
		proofs/interop/multilang/node/processor.js $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(KCL_RS)/.ready: $(UV) requirements/kcl-rs.txt
	rm -rf $(@D)
	$(UV) pip install --quiet --python .tools/uv/bin/python --target $(@D) --require-hashes --no-deps -r requirements/kcl-rs.txt
	@touch $@

# Unpacked, and not installed: its installation would fetch jars without checksums.
$(KCLPY)/.ready: $(PEERS)/.ready requirements/peers-kclpy.txt proofs/peers/programs/kclpy/pom.xml
	$(NEED_MAVEN)
	rm -rf $(KCLPY)
	.tools/uv/bin/python -m pip --python $(PEERS)/bin/python download --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --no-binary :all: --require-hashes -r requirements/peers-kclpy.txt -d $(KCLPY)
	tar -xzf $(KCLPY)/amazon_kclpy-*.tar.gz -C $(KCLPY)
	mvn --quiet --batch-mode --no-transfer-progress --strict-checksums -f proofs/peers/programs/kclpy/pom.xml \
		dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(KCLPY)/jars
	@touch $@

$(FUZZ)/.ready: $(UV) requirements/fuzz.txt
	@test -x $(FUZZ)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(FUZZ)
	$(UV) pip install --quiet --python $(FUZZ)/bin/python --require-hashes -r requirements/fuzz.txt
	@touch $@

$(DOCS)/.ready: $(UV) requirements/docs.txt
	@test -x $(DOCS)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(DOCS)
	$(UV) pip install --quiet --python $(DOCS)/bin/python --require-hashes -r requirements/docs.txt
	@touch $@

$(DELIVERY)/.ready: $(UV) requirements/delivery.txt
	@test -x $(DELIVERY)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(DELIVERY)
	$(UV) pip install --quiet --python $(DELIVERY)/bin/python --require-hashes -r requirements/delivery.txt
	@touch $@

# Go's checksum database vouches for these versions. The definitions of custom resources are those of the modules.
KUSTOMIZE := sigs.k8s.io/kustomize/kustomize/v5@v5.8.1
KUBE_SCORE := github.com/zegl/kube-score/cmd/kube-score@v1.20.0
KEDA := github.com/kedacore/keda/v2@v2.21.0
PROMETHEUS_OPERATOR := github.com/prometheus-operator/prometheus-operator@v0.85.0
$(MANIFESTS)/.ready: Makefile
	@command -v go >/dev/null || { echo "make: $(@D) needs Go: https://go.dev/doc/install" >&2; exit 69; }
	@mkdir -p $(MANIFESTS)/bin $(MANIFESTS)/crds
	GOBIN=$(CURDIR)/$(MANIFESTS)/bin go install $(KUSTOMIZE)
	GOBIN=$(CURDIR)/$(MANIFESTS)/bin go install $(KUBE_SCORE)
	for file in $$(go mod download -json $(KEDA) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/config/crd/bases/keda.sh_scaledobjects.yaml \
		$$(go mod download -json $(PROMETHEUS_OPERATOR) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/example/prometheus-operator-crd/*_servicemonitors.yaml \
		$$(go mod download -json $(PROMETHEUS_OPERATOR) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/example/prometheus-operator-crd/*_prometheusrules.yaml; \
		do install -m 644 $$file $(MANIFESTS)/crds/ || exit 1; done
	@touch $@

$(AUDIT)/.ready: $(UV) requirements/audit.txt
	@test -x $(AUDIT)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(AUDIT)
	$(UV) pip install --quiet --python $(AUDIT)/bin/python --require-hashes -r requirements/audit.txt
	@touch $@

# What a download needs is named before it starts.
NEED_MAVEN = @command -v mvn >/dev/null && command -v java >/dev/null || { echo "make: $(@D) needs Maven and a JDK: \
	install them (Debian: apt-get install maven default-jdk-headless)" >&2; exit 1; }
NEED_NODE = @command -v npm >/dev/null || { echo "make: $(@D) needs Node and npm: install them (Debian: apt-get \
	install nodejs npm)" >&2; exit 1; }

# --strict-checksums: Maven rejects files that do not match the repository's checksums.
$(DYNAMODB_LOCAL)/.ready: proofs/local_servers/dynamodb_local/pom.xml
	$(NEED_MAVEN)
	rm -rf $(DYNAMODB_LOCAL)
	mvn --quiet --batch-mode --no-transfer-progress --strict-checksums -f $< dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(DYNAMODB_LOCAL)
	@touch $@

$(MINISTACK)/.ready: $(UV) requirements/ministack.txt
	@test -x $(MINISTACK)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(MINISTACK)
	$(UV) pip install --quiet --python $(MINISTACK)/bin/python --require-hashes -r requirements/ministack.txt
	@touch $@

# Go's checksum database vouches for this version.
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
$(OBJECT_STORES)/.ready: $(UV) requirements/object-stores.txt proofs/local_servers/azurite/package-lock.json
	$(NEED_NODE)
	@command -v go >/dev/null || { echo "make: $(@D) needs Go: https://go.dev/doc/install" >&2; exit 69; }
	@mkdir -p $(@D)/bin
	@test -x $(@D)/moto/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(@D)/moto
	$(UV) pip install --quiet --python $(@D)/moto/bin/python --require-hashes -r requirements/object-stores.txt
	GOBIN=$(CURDIR)/$(@D)/bin go install $(VERSITYGW)
	cp proofs/local_servers/azurite/package.json proofs/local_servers/azurite/package-lock.json $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# venv of the standard library, as in docs/spark.md. The three differ in their packages alone.
$(CLUSTER)/.ready: $(UV) requirements/build.txt requirements/cluster.txt requirements/cluster-client.txt
	for name in bare environment client; do .tools/uv/bin/python -m venv --without-pip --clear $(@D)/$$name || exit 1; done
	$(UV) pip install --quiet --python $(@D)/environment/bin/python --require-hashes -r requirements/cluster.txt
	$(UV) pip install --quiet --python $(@D)/client/bin/python --require-hashes -r requirements/build.txt
	$(UV) pip install --quiet --python $(@D)/client/bin/python --require-hashes --no-build-isolation -r requirements/cluster-client.txt
	@touch $@

$(FOREIGN)/localstack/.ready: $(UV) requirements/foreign-localstack.txt
	@test -x $(@D)/bin/python || $(UV) venv --quiet --python .tools/uv/bin/python $(@D)
	$(UV) pip install --quiet --python $(@D)/bin/python --require-hashes -r requirements/foreign-localstack.txt
	@touch $@

$(FOREIGN)/kinesis-mock/.ready $(FOREIGN)/localstack-kinesis/.ready: $(FOREIGN)/%/.ready: proofs/interop/servers/%/package-lock.json
	$(NEED_NODE)
	mkdir -p $(@D)
	cp proofs/interop/servers/$*/package.json proofs/interop/servers/$*/package-lock.json $(@D)
	cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

$(KAFKA)/.ready: proofs/e2e/kafka/pom.xml
	$(NEED_MAVEN)
	rm -rf $(KAFKA)
	mvn --quiet --batch-mode --no-transfer-progress --strict-checksums -f $< package
	@touch $@

# PySpark alone, beside the environment: what it imports is in the environment, which comes after it on PYTHONPATH.
$(TABLES)/.ready: $(READY) requirements/tables-spark-4.2.txt requirements/tables-spark-4.1.txt proofs/e2e/tables/delta/pom.xml proofs/e2e/tables/iceberg/pom.xml
	$(NEED_MAVEN)
	rm -rf $(TABLES)
	for spark in 4.2 4.1; do $(UV) pip install --quiet --python $(BIN)/python --target $(TABLES)/spark-$$spark --no-deps \
		--no-build-isolation --require-hashes -r requirements/tables-spark-$$spark.txt || exit 1; done
	for format in delta iceberg; do mvn --quiet --batch-mode --no-transfer-progress --strict-checksums \
		-f proofs/e2e/tables/$$format/pom.xml package || exit 1; done
	@touch $@
