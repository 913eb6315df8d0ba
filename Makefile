# `make validate` and `make test` do everything on a fresh machine; the rest is for those who work on muster.

export UV_PYTHON_DOWNLOADS := never
# The CA of an inspecting proxy is in the system's store alone: for uv, and for the pip that fetches uv.
export UV_SYSTEM_CERTS := 1
export PIP_CERT ?= $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt))
unexport PYTHONDONTWRITEBYTECODE # else every process that a test starts compiles every module anew
UV_VERSION := 0.13.8
TOOLS := .tools
UV := $(or $(shell command -v uv),$(TOOLS)/bin/uv)
GO_FROM_PYPI = $(if $(filter-out $(CURDIR)/.venv/%,$(shell command -v go)),,--group go)
PYTHON ?= $(shell python3 -c 'import sys; print(sys.executable)')
REAL_NODES ?= $(if $(shell command -v runc),--real-nodes)
# facts of the projects whose names muster uses
export MUSTER_FACTS ?= $(abspath $(wildcard ../shared/facts))
GPUS ?= $(if $(REAL_NODES),--gpus)
PARTS ?= fairness gangs victims interactive parts utilization
WEB_TESTS = tests/musterweb tests/chart tests/agent/test_metrics.py tests/client/test_snapshot_crds.py \
	$(addprefix tests/cli/,test_data.py test_data_in_a_lab.py test_grafana.py test_helm_chart.py test_monitoring.py) \
	$(addprefix tests/control/,report/test_metrics.py test_prometheus_in_a_lab.py test_web_deployment.py) \
	$(addprefix tests/control/projects/test_success_,snapshots.py snapshots_in_a_lab.py) \
	$(addprefix tests/musterlab/test_,storage.py storage_driver.py storage_in_a_lab.py ingress_in_a_lab.py)
TEST_INSTALLER = PATH="$(abspath $(TOOLS)/bin):$$PATH" $(UV) run --frozen pytest -v -n 2 --dist worksteal tests/deployment


.PHONY: docs site first-day validate image rehearsal test test-gpu test-rare test-cli test-trust test-web test-installer test-upstream releases test-guests mutants soak environment lab-binaries format clean

validate: environment ## replay TR-4858 §4.8-4.10 and our own scenarios on a real API server, write reports/<run>/
	@$(UV) run --frozen muster validate $(PARTS:%=--part %) $(if $(OUT),--out $(OUT))

image: environment ## the operator's image as an OCI archive, without a container engine: dist/muster-VERSION.oci.tar
	@PATH="$(abspath $(TOOLS)/bin):$$PATH" $(UV) run --frozen python -m image.build dist/

test: environment lab-binaries ## every test, on every Python that is here; two lanes of tox.ini at a time
	@$(UV) run --frozen tox run-parallel --parallel 2

test-cli: environment lab-binaries ## every command line that the papers print, against containers that run; part of `make test`
	@$(UV) run --frozen pytest tests/cli_table

test-trust: environment lab-binaries ## break out of a project, with real tokens on a real API server; part of `make test`
	@$(UV) run --frozen pytest tests/trust

first-day: environment lab-binaries ## every failure of a cluster's first day at once, on 2 real kubelets and 20 simulated nodes; root; part of `make test-rare`
	@$(UV) run --frozen pytest -s tests/control/test_first_day_in_a_lab.py

test-web: environment lab-binaries ## pages, history, metrics, chart, data services, ingress: at the wire, in Chromium, in labs; part of `make test`
	@$(UV) run --frozen pytest $(WEB_TESTS)

test-rare: environment lab-binaries ## what takes minutes and breaks seldom, and all of Python 3.12 and 3.13; before a release
	@$(UV) run --frozen pytest -m rare -n 2
	@$(UV) run --frozen tox run -e py312,py313-whole

test-gpu: environment ## what only a real GPU shows; GPU_PYTHON=python with PyTorch, JAX, CuPy, Numba, Triton; findings in build/gpu/
	@MUSTER_GPU_PYTHON="$(GPU_PYTHON)" $(UV) run --frozen pytest -m gpu tests/gpu

test-installer: environment ## every role: on guests, against doubles and a real API server; needs root for the guests
	@TERM=dumb $(MAKE) --no-print-directory --jobs 2 REAL_NODES= GPUS= lab-binaries test-guests # guests mostly wait
	@$(TEST_INSTALLER) -m lab

test-upstream: environment ## each name that muster uses of other projects, against MUSTER_FACTS and the checkouts in MUSTER_UPSTREAM; part of `make test`
	@$(UV) run --frozen tox run -e upstream

releases: environment ## changes in the newest releases that muster has to follow, from MUSTER_UPSTREAM and MUSTER_FACTS; RELEASES="-o json"
	@$(UV) run --frozen python -m tests.upstream.releases $(RELEASES)

test-guests: environment ## the part of `make test-installer` that needs no control plane
	@$(TEST_INSTALLER) -m installer

rehearsal: environment ## from bare guests to a signed record by the real DeepOps and kubespray, without a network; root and MUSTER_UPSTREAM; goes on where it failed, KEEP=1, FAULTS=1, KILL=all, DOWN=1
	@$(UV) run --frozen python -m tests.rehearsal $(if $(KEEP),--keep) $(if $(FAULTS),--faults) $(if $(KILL),--kill) $(if $(DOWN),--down)

mutants: environment lab-binaries ## break the scheduler on purpose: each defect must make the scenarios fail
	@$(UV) run --frozen python -m tests.mutants

soak: environment ## random worlds, every decision checked: make soak SOAK="--lives 1000 --saturated 30000 --minutes 60"
	@$(UV) run --frozen python -m tests.world.soak $(SOAK)

lab-binaries: environment ## fetch or build the control plane once, build what real nodes need if this machine can have any, and their GPUs
	@$(UV) run --frozen muster lab build $(REAL_NODES) $(GPUS)

environment: $(UV)
	@$(UV) sync --frozen --quiet --compile-bytecode $(GO_FROM_PYPI) --python $(PYTHON)

$(TOOLS)/bin/uv:
	@echo "muster: uv is not installed, putting uv $(UV_VERSION) into $(TOOLS)/"
	@python3 -m venv $(TOOLS) || { echo "muster: python3 cannot make virtual environments; install python3-venv, or uv" >&2; exit 1; }
	@$(TOOLS)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

docs: environment ## write the generated pages: command line, metrics, evidence, outputs of examples, picture, schemas
	@$(UV) run --frozen python -m orchestrator.cli.reference docs/reference/cli.md
	@$(UV) run --frozen python -m orchestrator.cli.metrics_reference docs/reference/metrics.md
	@$(UV) run --frozen python docs/evidence.py docs/evidence.md
	@$(UV) run --frozen python -m tests.docs.write_outputs
	@$(UV) run --frozen python docs/architecture_picture.py docs/architecture.svg
	@$(UV) run --frozen python docs/pictures.py docs/pictures
	@$(UV) run --frozen python -m validation.schemas

site: environment ## build the documents as a site into build/site/; every link and anchor is checked
	@$(UV) run --frozen properdocs build

format: environment
	@$(UV) run --frozen ruff check --fix
	@$(UV) run --frozen ruff format

clean:
	rm -rf .venv .tools .tox reports
