# A thin face over CMakePresets.json. `make help` lists the targets.
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# One line of progress in a terminal; the tests that failed, and the time, at the end.
export CTEST_PROGRESS_OUTPUT := 1
# The CMake variable RUNNEL_CUDA. nvcc takes a tenth of a build, and a demo without a GPU runs none of its code.
CUDA = AUTO
DEMO_CUDA := $(if $(wildcard /dev/nvidiactl /dev/dxg),$(CUDA),OFF)

.PHONY: help setup build install demo fleet test fleet-test test-clients test-page bench bench-load bench-prompts bench-sessions bench-fleet bench-floods bench-http bench-text bench-families bench-hybrids bench-softmax bench-chat bench-page soak long asan asan-input tsan fuzz release image gpu-check clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## install what is missing, with apt
	@scripts/setup build

build: setup  ## build the release in build/release
	@mkdir -p build
	@cmake --preset release -DRUNNEL_CUDA=$(CUDA) $(CMAKE_FLAGS) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset release -j $(JOBS) $(if $(TARGET),--target $(TARGET))

install:  ## put the program, its manual page and completion under $(DESTDIR)$(PREFIX)
	@test -e build/release/cli/about/runnel.1 || $(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@cmake --install build/release --prefix "$(PREFIX)"

demo: ## serve zoo/mnist-small, ask it for 16 digits, write digits.png
	@$(MAKE) --no-print-directory build CUDA=$(DEMO_CUDA) CMAKE_FLAGS=-DRUNNEL_TESTS=OFF TARGET=runnel
	@scripts/demo build/release/runnel zoo/mnist-small digits.png

fleet:  ## three replicas with one store and HAProxy: a chat survives kill -9 of the replica that serves it
	@scripts/setup clients
	@scripts/setup proxy
	@$(MAKE) --no-print-directory build CUDA=$(DEMO_CUDA) CMAKE_FLAGS=-DRUNNEL_TESTS=OFF TARGET=runnel
	@/usr/bin/python3 -B scripts/fleet build/release/runnel

test:  ## every test, in the release build
	@scripts/setup test
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=ON
	@ctest --preset release $(CTEST_FLAGS)

fleet-test:  ## kill replicas under load 200 times with each kind of store, and the other faults of tests/fleet: a quarter of an hour (FLEET_SEED=17: again with the seed of a failure)
	@scripts/setup test
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=ON
	@RUNNEL=build/release/runnel PYTHONPATH=python:tests/python /usr/bin/python3 -B tests/fleet/long.py --seed $(or $(FLEET_SEED),0)

test-clients:  ## tests that need PyPI or clients of others: Prometheus, OpenAI's, LangChain's
	@scripts/setup test
	@scripts/setup test-clients
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=ON
	@ctest --preset clients $(CTEST_FLAGS)

test-page:  ## the page at / in a real Chromium: mouse, keyboard, touch, accessibility, pictures for docs/page.md
	@scripts/setup test
	@scripts/setup test-page
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=ON
	@ctest --preset page

bench: ## measure the CPU beside PyTorch, write docs/benchmarks: twenty minutes (BENCH_QUICK=1: a look in two)
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_cpu.py $(if $(BENCH_QUICK),--quick)
	@scripts/wrap docs/benchmarks/cpu.md

bench-load: ## load a server to twice what it can do, write docs/benchmarks/load.md: a quarter of an hour
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 scripts/runnel-random-bundle --preset mnist --endless --out build/bench/endless >/dev/null
	@/usr/bin/python3 bench/report/bench_load.py build/release/runnel build/bench/endless docs/benchmarks
	@scripts/wrap docs/benchmarks/load.md

bench-prompts: ## measure streams while long prompts are read, write docs/benchmarks/prompts.md: six minutes
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@test -d build/bench/rwkv7 || /usr/bin/python3 scripts/runnel-random-bundle --preset rwkv7 --dtype bf16 --out build/bench/rwkv7 >/dev/null
	@/usr/bin/python3 bench/report/bench_prompts.py build/release/runnel build/bench/rwkv7 docs/benchmarks
	@scripts/wrap docs/benchmarks/prompts.md

bench-sessions: ## measure forks and states that move, write docs/benchmarks/sessions.md: two minutes
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_sessions.py build/release/runnel build/release/bench/bench_moves docs/benchmarks
	@scripts/wrap docs/benchmarks/sessions.md

bench-fleet: ## measure what a store of sessions costs and saves, write docs/benchmarks/fleet.md: half an hour, 4 GB of disk
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_fleet.py build/release/runnel docs/benchmarks
	@scripts/wrap docs/benchmarks/fleet.md

bench-floods: ## flood a server and measure its memory and an honest client, write docs/benchmarks/floods.md: ten minutes
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_floods.py
	@scripts/wrap docs/benchmarks/floods.md

bench-http: ## measure OpenAI's API by HTTP beside the engine and gRPC, write docs/benchmarks/http.md: two minutes
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 scripts/runnel-random-bundle --preset mnist --endless --out build/bench/endless >/dev/null
	@/usr/bin/python3 scripts/runnel-random-bundle --preset tiny --endless --text --out build/bench/tiny >/dev/null
	@/usr/bin/python3 bench/report/bench_http.py build/release/runnel build/bench/endless build/bench/tiny docs/benchmarks
	@scripts/wrap docs/benchmarks/http.md

bench-text: ## measure RWKV-7 and Mamba-2 beside llama.cpp and rwkv, write docs/benchmarks/text.md: an hour and a half, 24 GB
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_text.py
	@scripts/wrap docs/benchmarks/text.md

bench-families: ## measure GLA, RetNet, DeltaNet, RWKV-6, Mamba-1 and others, write docs/benchmarks/families.md: ten minutes, 8 GB
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_families.py
	@scripts/wrap docs/benchmarks/families.md

bench-hybrids: ## measure hybrids at several positions beside llama.cpp, write docs/benchmarks/hybrids.md: two and a half hours, 16 GB
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_hybrids.py
	@scripts/wrap docs/benchmarks/hybrids.md

bench-softmax: ## measure softmax and linear attention, write docs/benchmarks/softmax.md: a quarter of an hour
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_softmax.py
	@scripts/wrap docs/benchmarks/softmax.md

bench-chat: ## measure a conversation of 50 turns beside llama-server, write docs/benchmarks/chat.md: half an hour
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/bench_chat.py
	@scripts/wrap docs/benchmarks/chat.md

bench-page: ## measure the loss of other streams while a page watches, write docs/benchmarks/page.md: two minutes
	@scripts/setup test-page
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@build/page/bin/python -B bench/report/bench_page.py

soak: ## 10,000 sessions, clients of every kind, keys and models that change, write docs/benchmarks/soak.md: an hour (SOAK_QUICK=1: ten minutes)
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=OFF
	@/usr/bin/python3 bench/report/soak.py build/release/runnel docs/benchmarks $(if $(SOAK_QUICK),--seconds 600)
	@scripts/wrap docs/benchmarks/soak.md

long:  ## what takes hours: 20,000 simulated schedulers, floods of a minute, soak, load; results into docs/developing.md
	@scripts/setup test
	@scripts/setup bench
	@$(MAKE) --no-print-directory build CMAKE_FLAGS=-DRUNNEL_TESTS=ON
	@scripts/long build/release

asan:  ## the tests under the address and undefined-behaviour sanitizers
	@scripts/setup test
	@cmake --preset asan && cmake --build --preset asan -j $(JOBS) && ctest --preset asan

asan-input:  ## the same for libraries and doors, which read input and hand out memory
	@scripts/setup test
	@cmake --preset asan && cmake --build --preset asan-input -j $(JOBS) && ctest --preset asan-input $(CTEST_FLAGS)

tsan:  ## everything that needs no gRPC under the thread sanitizer
	@scripts/setup test
	@cmake --preset tsan && cmake --build --preset tsan -j $(JOBS) && ctest --preset tsan $(CTEST_FLAGS)

fuzz:  ## build the libFuzzer programs of the parsers (needs clang-19 and libclang-rt-19-dev)
	@cmake --preset fuzz && cmake --build --preset fuzz -j $(JOBS)

release:  ## write a release to build/release-VERSION: program, Debian package, Python package, image, checksums
	@packaging/release

image:  ## build the container image, run it, let it draw: digits-from-image.png
	@docker/image digits-from-image.png

gpu-check:  ## on a machine with a GPU: build, prove and measure the CUDA backend; figures in build/gpu-check
	@$(MAKE) --no-print-directory build CUDA=ON CMAKE_FLAGS=-DRUNNEL_TESTS=ON
	@bench/gpu/gpu_check build/release build/gpu-check

clean:  ## remove build/
	@rm -rf build
