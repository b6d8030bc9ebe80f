# make run    build and serve the built-in model
# make check  formatting, lints, unit tests, the rules of the sources, and the simulation
# make test   all checks and all tests
# Both install what is missing first.

CARGO ?= cargo
ARGS ?=

# make dist   programs for every x86-64 processor with AVX2, in target/dist, and of them a tar file, a wheel for
#             pip and uv, a package for npm, and install.sh. They are built in a Debian 11, which it fetches, so that they
#             run with an old glibc, too. That needs root; make dist-here builds them for the glibc of this machine
#             (make dist-aarch64: for ARM processors, in target/dist-aarch64)
# make deb    a Debian package of them (make deb-aarch64: for ARM); make rpm: an RPM package
# make test-packages tries each of them in a fresh Debian, which it fetches
.PHONY: run check test beside-e2e build dist dist-here dist-aarch64 pack deb deb-aarch64 cargo-deb rpm test-packages test-deb setup setup-test fmt clippy doc unit e2e loom fuzz clean

# Without corelane-bench, which a server does not need.
run: setup
	$(CARGO) build --release --package corelane
	$${CARGO_TARGET_DIR:-target}/release/corelane serve $(ARGS)

build: setup
	$(CARGO) build --release

# What a change should pass before its commit, in a few minutes.
check: fmt clippy
	$(CARGO) test --release --lib --test rules --test simulation

# The clients need no compiler once the unit tests are built, so they run beside the stages that do.
test: fmt clippy unit
	$(MAKE) --jobs=2 --output-sync=target e2e beside-e2e

beside-e2e: doc loom fuzz

setup:
	@.ci/setup cmake clang libclang-dev pkg-config

setup-test: setup
	@.ci/setup chromium-headless-shell curl haproxy python3 python3-venv

fmt: setup
	$(CARGO) fmt --all --check

clippy: setup
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

doc: setup
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --no-deps --document-private-items

# Tests that open no socket, or whose time is the model's: they need not run on epoll, too.
COMPUTING := --skip attention:: --skip experts:: --skip kernels:: --skip schemas::

unit: setup-test
	$(CARGO) test --release
	CORELANE_IO=epoll $(CARGO) test --release -p corelane --test it -- $(COMPUTING)
	$(CARGO) test --release --benches

# The official clients, against the binary that the unit tests have built.
e2e: setup-test
	$(CARGO) test --release --no-run
	test -x target/venv/bin/python || python3 -m venv target/venv
	target/venv/bin/pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
	test -x target/venv-lm-eval/bin/python || python3 -m venv target/venv-lm-eval
	target/venv-lm-eval/bin/pip install --quiet --disable-pip-version-check -r tests/python/lm_eval_task/requirements.txt
	target/venv/bin/python -m pytest -q tests/python

# For every x86-64-v3 processor, stripped, with its symbols, manual pages and bill of materials beside it.
dist: setup
	@.ci/setup binutils debootstrap python3
	WITHIN=packaging/old-debian.sh packaging/dist.sh
	packaging/pack.py target/dist

dist-here: setup
	@.ci/setup binutils python3
	packaging/dist.sh
	packaging/pack.py target/dist

# The same for ARM, by Debian's cross compiler if this machine is none.
dist-aarch64: setup
	@.ci/setup binutils python3 g++-aarch64-linux-gnu qemu-user-static
	rustup target add aarch64-unknown-linux-gnu
	packaging/dist.sh aarch64
	packaging/pack.py target/dist-aarch64

# target/package is the folder that the list of the package's files in Cargo.toml names.
deb: dist cargo-deb
	ln -sfn dist target/package
	$(CARGO) deb --no-build --output target/dist/

deb-aarch64: dist-aarch64 cargo-deb
	ln -sfn dist-aarch64 target/package
	$(CARGO) deb --no-build --target aarch64-unknown-linux-gnu --output target/dist-aarch64/

cargo-deb:
	command -v cargo-deb > /dev/null || $(CARGO) install --locked cargo-deb@3.8.0

rpm: dist
	command -v cargo-generate-rpm > /dev/null || $(CARGO) install --locked cargo-generate-rpm@0.21.1
	ln -sfn dist target/package
	$(CARGO) generate-rpm --output target/dist/

# Not a part of `test`, which needs no network.
test-packages: deb rpm test-deb
	@.ci/setup debootstrap
	packaging/test-install.sh target/dist
	packaging/test-wheel.sh target/dist
	packaging/test-npm.sh target/dist
	packaging/test-rpm.sh target/dist
	packaging/test-container.sh target/dist

test-deb: deb
	@.ci/setup curl debootstrap
	packaging/test-deb.sh target/dist/corelane_*_amd64.deb

# All interleavings of the lanes at their links.
loom: setup
	$(CARGO) run --release --manifest-path tests/loom/Cargo.toml --target-dir target/loom

# Ten seconds of each fuzz target.
fuzz: setup-test
	python3 fuzz/run.py --seconds 10

clean:
	$(CARGO) clean
