# Three images: `service`, for `efo run` with all sinks and lease stores; `spark`, for `efo pipeline` too; `kafka`, for
# `efo run` with Kafka as its sink and without the log, which is smaller.
#
#   docker build --target service -t efo .        # or make image, which also fills the labels in
#   docker build --target spark -t efo-spark .
#   docker build --target kafka -t efo-kafka .
#   docker run --read-only --tmpfs /tmp -v efo:/var/lib/efo -v ./config:/etc/efo:ro -e EFO_CONFIG=/etc/efo/efo.toml \
#     -p 8080:8080 efo
#
# docs/deployment.md: sizes, how to update the base, and which of these steps a test runs.

# By digest, so that the same commit is always built on the same base.
ARG BASE=python:3.13.15-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e

# --- build: none of these stages is in an image ------------------------------------------------------------------

FROM ${BASE} AS build
# For a network that has a package index of its own, or opens TLS: the text of its certificates, in PEM. Neither is in an image.
ARG PACKAGE_INDEX=""
ARG CA_CERTIFICATE=""
# A file for each certificate: of a file with several, Debian gives Java, and so Maven, only the first.
RUN if [ -n "$CA_CERTIFICATE" ]; then \
      printf '%s\n' "$CA_CERTIFICATE" > /tmp/build.pem \
      && awk '/BEGIN CERTIFICATE/ { n++ } n { print > ("/usr/local/share/ca-certificates/build-" n ".crt") }' /tmp/build.pem \
      && update-ca-certificates; fi
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_INDEX_URL=${PACKAGE_INDEX} UV_DEFAULT_INDEX=${PACKAGE_INDEX}
ENV UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1 UV_NO_PROGRESS=1
WORKDIR /src
COPY requirements/uv.txt requirements/build.txt requirements/
RUN python -m pip install --no-cache-dir --require-hashes -r requirements/uv.txt

FROM build AS wheel
COPY pyproject.toml hatch_build.py README.md LICENSE pyspark_efo.py pyspark_kinesis.py ./
COPY efo efo
COPY service service
ARG REVISION=unknown
RUN EFO_COMMIT="${REVISION}" uv build --quiet --wheel --build-constraints requirements/build.txt --require-hashes --out-dir /dist

# Dependencies before the wheel: this layer is rebuilt only when the locked requirements change.
FROM build AS service-prefix
COPY requirements/service.txt requirements/
RUN uv venv --quiet /opt/efo \
 && uv pip install --quiet --python /opt/efo --require-hashes --only-binary :all: -r requirements/service.txt
COPY --from=wheel /dist /dist
RUN uv pip install --quiet --python /opt/efo --no-deps /dist/*.whl

FROM build AS kafka-prefix
COPY requirements/kafka.txt requirements/
RUN uv venv --quiet /opt/efo \
 && uv pip install --quiet --python /opt/efo --require-hashes --only-binary :all: -r requirements/kafka.txt
COPY --from=wheel /dist /dist
RUN uv pip install --quiet --python /opt/efo --no-deps /dist/*.whl

FROM build AS spark-prefix
COPY requirements/spark.txt requirements/
RUN uv venv --quiet /opt/efo \
 && uv pip install --quiet --python /opt/efo --require-hashes --build-constraints requirements/build.txt \
      -r requirements/spark.txt
COPY --from=wheel /dist /dist
RUN uv pip install --quiet --python /opt/efo --no-deps /dist/*.whl

# Spark's modules for Kafka and Avro, which PySpark lacks.
FROM build AS spark-jars
# No version: Debian keeps only the newest one of a stable release.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends maven && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/spark-jars
COPY requirements/spark-jars /src/spark-jars
RUN mvn --quiet --batch-mode --no-transfer-progress --strict-checksums -f /src/spark-jars/pom.xml \
      dependency:copy-dependencies -DoutputDirectory=/opt/spark-jars \
 && sha256sum --check --strict --quiet /src/spark-jars/jars.sha256

# --- images ------------------------------------------------------------------------------------------------------

FROM ${BASE} AS runtime
# A service installs nothing and becomes nobody else. Of the base, only the standard library without pip's wheel and Debian's
# packages remain, and no file with another user's rights. The user has a name and a home for Java, which Spark cannot log in
# without.
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip \
 && rm -r "$(python -c 'import ensurepip; print(ensurepip.__path__[0])')" \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
 && echo "efo:x:10001:10001:efo:/var/lib/efo:/usr/sbin/nologin" >> /etc/passwd \
 && echo "efo:x:10001:" >> /etc/group \
 && install -d -o 10001 -g 10001 /var/lib/efo
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="efo" \
      org.opencontainers.image.description="Reads Amazon Kinesis Data Streams by enhanced fan-out, in order, and relays every record to where Spark reads it." \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
# All interfaces: probes and scrapers connect from outside the container.
ENV EFO_SERVICE__HOST=0.0.0.0 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Relative paths (leases, log, output) are below this directory, and not beside the configuration, which is mounted
# read-only. The rest may be read-only too, but for /tmp.
ENV EFO_SERVICE__DIRECTORY=/var/lib/efo
WORKDIR /var/lib/efo
VOLUME /var/lib/efo
EXPOSE 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/efo/bin/efo"]

FROM runtime AS spark
# No version: Debian keeps only the newest one of a stable release.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless && rm -rf /var/lib/apt/lists/*
LABEL org.opencontainers.image.title="efo-spark"
COPY --from=spark-jars /opt/spark-jars /opt/spark-jars
COPY --from=spark-prefix /opt/efo /opt/efo
RUN --mount=type=bind,source=tools/sbom.py,target=/tmp/sbom.py \
    python /tmp/sbom.py /opt/efo --jars /opt/spark-jars > /opt/sbom.cdx.json
ENV EFO_PIPELINE__JARS=/opt/spark-jars
USER 10001:10001
# `efo pipeline` has no health endpoint. Its exit status and its metrics tell.
HEALTHCHECK NONE
CMD ["pipeline"]

FROM runtime AS kafka
LABEL org.opencontainers.image.title="efo-kafka"
COPY --from=kafka-prefix /opt/efo /opt/efo
RUN --mount=type=bind,source=tools/sbom.py,target=/tmp/sbom.py \
    python /tmp/sbom.py /opt/efo > /opt/sbom.cdx.json
ENV EFO_RELAY__SINK=kafka
USER 10001:10001
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/opt/efo/bin/efo", "healthcheck"]
CMD ["run"]

# The last stage is the default target.
FROM runtime AS service
COPY --from=service-prefix /opt/efo /opt/efo
RUN --mount=type=bind,source=tools/sbom.py,target=/tmp/sbom.py \
    python /tmp/sbom.py /opt/efo > /opt/sbom.cdx.json
# Numeric, so that Kubernetes can verify that it is not root (runAsNonRoot).
USER 10001:10001
# Images in OCI's own format have no health check: make image asks podman and buildah for Docker's.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/opt/efo/bin/efo", "healthcheck"]
CMD ["run"]
