# The service, `efo run`, with all sinks and lease stores. `efo pipeline` needs Spark and Java, and does not run in this
# image.
#
#   docker build -t efo .
#   docker run -e EFO_CONFIG=/etc/efo/efo.toml -v ./config:/etc/efo:ro -v efo:/var/lib/efo -p 8080:8080 efo

FROM python:3.13-slim AS build
ENV UV_PYTHON_DOWNLOADS=0 UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_PROGRESS=1
WORKDIR /src
# Dependencies first: this layer is rebuilt only when the locked requirements change.
COPY requirements/uv.txt requirements/build.txt requirements/service.txt requirements/
RUN python -m pip install --no-cache-dir --require-hashes -r requirements/uv.txt \
 && uv venv /opt/build \
 && uv pip install --no-cache --python /opt/build/bin/python --require-hashes -r requirements/build.txt \
 && uv venv /opt/efo \
 && uv pip install --no-cache --python /opt/efo/bin/python --require-hashes -r requirements/service.txt
COPY pyproject.toml README.md LICENSE pyspark_efo.py ./
COPY efo efo
COPY service service
RUN /opt/build/bin/hatchling build -t wheel -d /dist \
 && uv pip install --no-cache --python /opt/efo/bin/python --no-deps /dist/*.whl

FROM python:3.13-slim
COPY --from=build /opt/efo /opt/efo
# Numeric, so that Kubernetes can verify that it is not root (runAsNonRoot).
RUN install -d -o 10001 -g 10001 /var/lib/efo
USER 10001:10001
# The default paths (leases, log) are relative to this directory. With a volume, the rest may be read-only.
WORKDIR /var/lib/efo
VOLUME /var/lib/efo
# All interfaces: probes and scrapers connect from outside the container.
ENV EFO_SERVICE__HOST=0.0.0.0 PYTHONDONTWRITEBYTECODE=1
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/opt/efo/bin/efo", "healthcheck"]
ENTRYPOINT ["/opt/efo/bin/efo"]
CMD ["run"]
