# The proofs, and what they download, at the versions and hashes of requirements/ and of lock files beside each proof.
# `make proofs` lists them: proofs/catalog.py.

PROOFS := $(shell sed -n 's|^        Proof."\([a-z0-9-]*\)".*|\1|p' proofs/catalog.py)

.PHONY: $(PROOFS) kafka-install object-stores tables-install cluster-install third-party-servers-install dynamodb-local ministack peers-install

# ALWAYS: arguments that come before ARGS. RUN: the Python that runs a proof.
RUN = $(BIN)/python
$(PROOFS): %: $(READY)
	@$(RUN) -m proofs $@ $(ALWAYS) $(ARGS)

# A seed determines a simulation world: consumers, faults, crashes and reshards, in virtual time. So failures repeat.
SEEDS ?= 200
sim: ALWAYS = --seeds $(SEEDS)

SEED ?= 1
SAMPLE ?= 100
mutants: ALWAYS = --seed $(SEED) --sample $(SAMPLE)

MINUTES ?= 60
soak: ALWAYS = --minutes $(MINUTES)

# Coverage-guided. atheris has wheels for CPython 3.11 to 3.13 on Linux for x86-64. Not part of `test`, which checks the
# same properties with Hypothesis.
SECONDS ?= 60
fuzz: ALWAYS = --seconds $(SECONDS)
fuzz: RUN = PYTHONPATH=service .tools/fuzz/bin/python
fuzz: .tools/fuzz/.ready

# Without cargo, efo runs without it: maturin is not fetched then.
native: $(if $(shell command -v cargo),.tools/native/.ready)

# With efo and its own dependencies alone: no extra is installed.
api: RUN = .tools/base/bin/python
api: .tools/base/.ready

# Against AWS it costs money, so it also needs ARGS=--accept-cost.
aws-conformance: ALWAYS = $(ENDPOINT)

# --- what each proof needs ---------------------------------------------------------------------------------------------

KAFKA := .tools/kafka
OBJECT_STORES := .tools/object-stores
TABLES := .tools/tables
CLUSTER := .tools/cluster
DYNAMODB_LOCAL := .tools/dynamodb-local
MINISTACK := .tools/ministack
FOREIGN := .tools/foreign
PEERS := .tools/peers/python-venv
KCLPY := .tools/peers/kclpy
MULTILANG := .tools/multilang/node
KCL_RS := .tools/multilang/python
MANIFESTS := .tools/manifests

kafka-e2e spark-parity: $(KAFKA)/.ready
object-store-e2e: $(OBJECT_STORES)/.ready
tables-e2e: $(TABLES)/.ready $(OBJECT_STORES)/.ready $(KAFKA)/.ready
cluster-e2e: $(OBJECT_STORES)/.ready $(CLUSTER)/.ready
third-party-clients: .tools/witnesses/python-venv/.ready
peers migrate-test: peers-install
migrate-test: .tools/migration/python-venv/.ready
readers: .tools/readers/.ready .tools/spark-3.5/.ready
spark-versions: .tools/spark-4.0/.ready .tools/spark-4.1/.ready .tools/spark-4.2/.ready
kcl-interop: $(DYNAMODB_LOCAL)/.ready
kcl-multilang: $(DYNAMODB_LOCAL)/.ready $(KCLPY)/.ready $(MULTILANG)/.ready $(KCL_RS)/.ready
audit: .tools/audit/.ready
image-test: .tools/delivery/.ready
release-check: .tools/delivery/.ready .tools/audit/.ready .tools/docs/.ready $(if $(shell command -v go),.tools/actionlint/bin/actionlint)
manifests: .tools/delivery/.ready $(MANIFESTS)/.ready

# Servers that `make test` starts, too: without them, their tests are skipped by name.
kafka-install: $(KAFKA)/.ready
object-stores: $(OBJECT_STORES)/.ready
tables-install: $(TABLES)/.ready
cluster-install: $(CLUSTER)/.ready
dynamodb-local: $(DYNAMODB_LOCAL)/.ready
ministack: $(MINISTACK)/.ready
# amazon_kclpy only where Java and Maven are.
peers-install: $(READY) $(PEERS)/.ready $(KCL_RS)/.ready $(if $(shell command -v mvn),$(DYNAMODB_LOCAL)/.ready $(KCLPY)/.ready)
third-party-servers-install: $(READY)
	@$(BIN)/python -m proofs.interop.servers --install $(ARGS)

# --- environments: one rule, which installs the locks among its prerequisites -------------------------------------------

.tools/base/.ready: requirements/build.txt requirements/base.txt pyproject.toml
.tools/base/.ready: THEN = $(UV) pip install --quiet --python .tools/base/bin/python --no-deps --no-build-isolation --editable .
.tools/fuzz/.ready: requirements/fuzz.txt
# What `make native` has built, which installs later builds there itself.
.tools/fuzz/.ready: THEN = $(patsubst %,$(UV) pip install --quiet --python .tools/fuzz/bin/python --no-deps %,$(wildcard build/native/efo_native-*.whl))
.tools/docs/.ready: requirements/docs.txt
.tools/native/.ready: requirements/native.txt
.tools/audit/.ready: requirements/audit.txt
.tools/delivery/.ready: requirements/delivery.txt
.tools/witnesses/python-venv/.ready: requirements/witnesses.txt
.tools/migration/python-venv/.ready: requirements/migration.txt
$(PEERS)/.ready: requirements/build.txt requirements/peers.txt
$(MINISTACK)/.ready: requirements/ministack.txt
$(FOREIGN)/localstack/.ready: requirements/foreign-localstack.txt

ENVIRONMENTS := base fuzz docs native audit delivery witnesses/python-venv migration/python-venv peers/python-venv ministack foreign/localstack
# What has no wheel is built by the packages of build.txt where that is among the locks. --relocatable: their programs, such
# as pip-audit, run wherever the checkout, or .tools, is moved.
$(ENVIRONMENTS:%=.tools/%/.ready): $(UV)
	@test -x $(@D)/bin/python || $(UV) venv --quiet --relocatable --python .tools/uv/bin/python $(@D)
	@for lock in $(filter requirements/%.txt,$^); do $(UV) pip install --quiet --python $(@D)/bin/python --require-hashes \
		$(if $(THEN),--no-build-isolation) -r $$lock || exit 1; done
	@$(THEN)
	@touch $@

# --- what is no such environment ----------------------------------------------------------------------------------------

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

.tools/actionlint/bin/actionlint:
	GOBIN=$(CURDIR)/$(@D) go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.8

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

# Go's checksum database vouches for this version.
VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
$(OBJECT_STORES)/.ready: $(UV) requirements/object-stores.txt proofs/local_servers/azurite/package-lock.json
	$(NEED_NODE)
	@command -v go >/dev/null || { echo "make: $(@D) needs Go: https://go.dev/doc/install" >&2; exit 69; }
	@mkdir -p $(@D)/bin
	@test -x $(@D)/moto/bin/python || $(UV) venv --quiet --relocatable --python .tools/uv/bin/python $(@D)/moto
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

# Packages beside the environment: what they import is in the environment, which comes after them on PYTHONPATH.
SPARKS := 3.5 4.0 4.1 4.2
$(SPARKS:%=.tools/spark-%/.ready) .tools/readers/.ready: .tools/%/.ready: requirements/%.txt | $(READY)
	rm -rf $(@D)
	$(UV) pip install --quiet --python $(BIN)/python --target $(@D) --no-deps --no-build-isolation --require-hashes \
		-r requirements/$*.txt
	@touch $@

$(TABLES)/.ready: .tools/spark-4.2/.ready .tools/spark-4.1/.ready proofs/e2e/tables/delta/pom.xml proofs/e2e/tables/iceberg/pom.xml
	$(NEED_MAVEN)
	rm -rf $(TABLES)
	for format in delta iceberg; do mvn --quiet --batch-mode --no-transfer-progress --strict-checksums \
		-f proofs/e2e/tables/$$format/pom.xml package || exit 1; done
	@touch $@
