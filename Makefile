# make demo    predict, fine-tune, save, reload and explain, on JAX (BACKEND=torch, BACKEND=tensorflow)
# make test    the suite: what needs no backend, then the rest on torch, and on JAX and TensorFlow
#              what computes with the backend (BACKENDS="jax" for one); predictions on OpenVINO.
#              ROOM=images for the tests of one room
# make test-thorough   the same with the nightly tests, and every count in full: two hours
# make test-trained   the tests on a trained encoder, which weights/trained.py takes from the package
#              index into TRAINED
# make test-floors   a training on each backend with the oldest versions that are promised
# make test-keras VERSION=3.14.0   the suite on another Keras
# make test-versions   goldens, fit, save, load and export with the oldest and the newest releases of
#              the dependencies and with keras-nightly, into weights/VERSIONS.md
# make docs    the site, in docs/_build/html: warnings, dead links and searches that find another
#              page first are errors
# make dist    wheel and sdist, checked, served as a local package index, and installed by name with each
#              backend alone: README and start page run as printed
# make lint    ruff, mypy, the order of the rooms, typos
# make fuzz    damaged and hostile inputs for every reader (FUZZ_ARGS="--count 1000 --seed 1"); a
#              minimal input for each fault goes to fuzz-faults/
# make bench   keras_vit beside its peers: hours, on an otherwise idle machine, or in parts:
#              bench-speed, bench-families, bench-memory; BACKENDS=jax, ROUNDS=3
# make bench-commands   every command and every export once at ViT-S/16, with its seconds: nightly
# make bench-gpu   tests and figures that need a GPU, into GPU_FIGURES: ten minutes, most important
#              rows first; a second call, on the same day or another, measures the others
# make clean   removes environments and everything that was built

PYTHON ?= python3
BACKEND ?= jax
BACKENDS ?= jax torch tensorflow openvino
WORKERS ?= 2

BIN := .venv/bin
FIGURES ?= benchmarks/results/cpu.json
GPU_FIGURES ?= benchmarks/results/gpu.json
COMMAND_FIGURES ?= benchmarks/results/full_size.json
ROUNDS ?= 5
TRAINED ?= .venv/trained
BENCH := $(BIN)/python -m benchmarks --rounds $(ROUNDS) --json $(FIGURES)
# Python compiles a module when it is first imported; most of what is installed never is.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	--constraint constraints.txt
# Where a machine forbids that, each process would compile ten thousand modules again.
unexport PYTHONDONTWRITEBYTECODE
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-thorough test-trained test-floors test-keras test-versions docs dist lint fuzz bench bench-speed bench-families bench-memory bench-commands bench-gpu clean

demo: .venv/.demo-$(BACKEND)
	KERAS_BACKEND=$(BACKEND) $(BIN)/keras-vit demo --path demo

# Two processes share the tests, so that none needs a second core for itself; what JAX compiles
# for one test serves the others. pytest returns 5 where none of the chosen tests runs on a backend.
test: export OMP_NUM_THREADS = 1
test: export TF_NUM_INTRAOP_THREADS = 1
test: export JAX_COMPILATION_CACHE_DIR = $(CURDIR)/.venv/jax-cache
test: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS = 0
test: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES = -1
test: .venv/.test
	@for backend in none $(BACKENDS); do \
		echo "== $$backend"; \
		KERAS_BACKEND=$$backend $(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) \
			--dist worksteal --ignore tests/trained \
			$(if $(ROOM),tests/$(ROOM)) $(PYTEST_ARGS) || [ $$? -eq 5 ] || exit 1; \
	done

test-thorough:
	KERAS_VIT_THOROUGH=1 $(MAKE) test

test-trained: export KERAS_VIT_TRAINED = $(TRAINED)
test-trained: .venv/.test $(TRAINED)/encoder/config.json
	@for backend in $(BACKENDS); do \
		echo "== $$backend"; \
		KERAS_BACKEND=$$backend $(BIN)/python -m pytest --quiet tests/trained $(PYTEST_ARGS) || exit 1; \
	done

$(TRAINED)/encoder/config.json: | .venv/.test
	KERAS_BACKEND=torch $(BIN)/python -m weights.trained $(TRAINED)

# The oldest version of every dependency that pyproject.toml promises: the first answer, a training,
# a save and a load on each backend, each in an environment of its own.
test-floors:
	@for backend in $(filter-out openvino,$(BACKENDS)); do \
		$(PYTHON) -m venv .venv-floors/$$backend && \
		.venv-floors/$$backend/bin/python -m pip install --quiet --disable-pip-version-check \
			--constraint constraints-floors.txt --editable ".[$$backend]" && \
		KERAS_BACKEND=$$backend .venv-floors/$$backend/bin/python -m weights.release || exit 1; \
	done

# The suite on another Keras, in an environment of its own: make test-keras VERSION=3.14.0
test-keras: .venv/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--target .venv-versions/keras==$(VERSION) keras==$(VERSION)
	@for backend in $(BACKENDS); do \
		PYTHONPATH=.venv-versions/keras==$(VERSION) KERAS_BACKEND=$$backend $(BIN)/python -m pytest \
			--quiet --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS) || exit 1; \
	done

# The oldest and the newest releases that pyproject.toml promises, each in front of the packages of
# .venv or, for jax 0.12, in an environment of Python 3.12. weights/VERSIONS.md records what was run.
test-versions: .venv/.test
	$(BIN)/python -m weights.versions --backends $(BACKENDS)

# In an environment of its own: mypy reads whatever is installed, and would find other errors beside
# the packages of the tests.
lint: .venv-lint/.done
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .
	.venv-lint/bin/mypy
	.venv-lint/bin/lint-imports --no-cache
	.venv-lint/bin/typos

# The gallery runs its examples on torch. KERAS_VIT_GALLERY=no leaves that out. Where the trained
# encoder is in TRAINED, it draws the pictures of "Look inside" anew.
docs: .venv/.docs
	$(if $(wildcard $(TRAINED)/encoder/config.json),KERAS_BACKEND=torch $(BIN)/python -m weights.look_inside $(TRAINED)/encoder docs/look_inside)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto docs docs/_build/html
	$(BIN)/python docs/_extensions/links.py docs/_build/html
	$(BIN)/python docs/_extensions/search_check.py docs/_build/html

dist: .venv/.dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -m weights.first_hour dist --backends $(BACKENDS)

fuzz: .venv/.test
	KERAS_BACKEND=torch $(BIN)/python -m weights.fuzz $(FUZZ_ARGS)

bench: bench-speed bench-families bench-memory

bench-speed: .venv/.test
	@for backend in $(filter-out openvino,$(BACKENDS)); do \
		$(BENCH) --backend $$backend --model S/16 B/16 --batch 1 8 && \
		$(BENCH) --backend $$backend --task train || exit 1; \
	done
	@$(BENCH) --model S/16 B/16 --batch 1 8 --peers timm timm-in keras_vit-in flax \
		keras_vit-torch-predict keras_vit-jax-predict keras_vit-tensorflow-predict \
		keras_vit-tensorflow-predict-compiled keras_vit-openvino-predict
	@$(BENCH) --task train --peers timm flax keras_vit-torch-fit keras_vit-jax-fit \
		keras_vit-tensorflow-fit
	@$(BENCH) --batch 1 8 --dtype bfloat16 --peers timm keras_vit-torch-predict timm-in-openvino \
		keras_vit-openvino-predict

# One image. A training step on three backends, of two libraries, takes more memory than one machine
# may have: torch has a run of its own.
FAMILIES := DINOv2-S/14 DINOv3-S/16 SigLIP-B/16 CLIP-B/32
bench-families: .venv/.test
	@$(BENCH) --model $(FAMILIES) --batch 1 --peers timm transformers \
		keras_vit-torch-predict keras_vit-jax-predict keras_vit-tensorflow-predict \
		keras_hub-torch-predict keras_hub-jax-predict keras_hub-tensorflow-predict
	@$(BENCH) --task train --model $(FAMILIES) --batch 1 --peers timm transformers \
		keras_vit-torch-fit keras_hub-torch-fit
	@$(BENCH) --task train --model $(FAMILIES) --batch 1 --peers keras_vit-jax-fit \
		keras_vit-tensorflow-fit keras_hub-jax-fit keras_hub-tensorflow-fit

# And the time to load a checkpoint and to read photographs.
bench-memory: .venv/.test
	@for size in 224 384; do for task in forward train; do \
		$(BENCH) --task memory-$$task --model B/16 --image-size $$size --batch 4 --rounds 1 \
			--peers timm flax keras_vit-torch-predict keras_vit-torch-fit keras_vit-jax \
			keras_vit-tensorflow-predict keras_vit-tensorflow-fit || exit 1; \
	done; done
	@$(BENCH) --task memory-finetune --model B/16 --image-size 384 --batch 4 --rounds 1
	@$(BENCH) --task memory-forward --model B/16 --image-size 1024 --batch 1 --rounds 1 \
		--peers keras_vit-torch-predict keras_vit-jax-predict keras_vit-tensorflow-predict
	@$(BENCH) --task load --model L/16 --rounds 3
	@$(BENCH) --task input --rounds 3

# It fails if a command fails or takes nine minutes.
bench-commands: .venv/.test
	$(BIN)/python -m benchmarks.full_size $(COMMAND_FIGURES)

# The wheels of constraints.txt are for CPUs: install torch and jax[cuda12] for the GPU first.
bench-gpu: .venv/.test
	$(BIN)/python -m benchmarks.gpu $(GPU_FIGURES) $(GPU_ARGS)

clean:
	rm -rf .venv .venv-lint .venv-floors .venv-versions demo build dist docs/_build docs/gallery

.venv/.base:
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.demo-$(BACKEND): .venv/.base pyproject.toml constraints.txt
	@echo "Installing keras_vit with $(BACKEND) into .venv"
	$(PIP) --editable ".[$(BACKEND),demo]"
	@touch $@

.venv/.test: .venv/.base pyproject.toml constraints.txt
	@echo "Installing keras_vit with all backends into .venv"
	$(PIP) --upgrade pip
	$(PIP) --editable ".[jax,torch,tensorflow,demo,tfds,huggingface,export,openvino,nncf,litert,serve]" --group test
	@# The peers that checkpoints are exchanged with. Their own demands would bring another torch.
	$(PIP) --group peers
	$(PIP) --no-deps timm lightly torchvision keras-hub tensorflow-text kagglehub kagglesdk
	@touch $@

.venv/.docs: .venv/.base pyproject.toml constraints.txt
	@echo "Installing keras_vit with torch and Sphinx into .venv"
	$(PIP) --upgrade pip
	$(PIP) --editable ".[torch,demo]" --group docs
	@touch $@

.venv/.dist: .venv/.base pyproject.toml constraints.txt
	$(PIP) --upgrade pip
	$(PIP) --group dist
	@touch $@

.venv-lint/.done: BIN := .venv-lint/bin
.venv-lint/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-lint
	$(PIP) --upgrade pip
	@# mypy reads the types of what keras_vit stands on, so that has to be there.
	$(PIP) --editable . --group lint
	@touch $@
