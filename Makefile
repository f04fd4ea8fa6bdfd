# A thin front of meson and ninja; the steps of `make check` are in tests/run.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
MESON ?= meson
NINJA ?= ninja

all: $(BUILD)/build.ninja
	@$(NINJA) -C $(BUILD)

$(BUILD)/build.ninja:
	$(MESON) setup $(BUILD)

demo:
	@tools/setup build
	@$(MAKE) --no-print-directory all
	@examples/demo.sh

check:
	@tools/setup test matrix
	@tests/run

quick:
	@tools/setup test
	@tests/run quick

asan:
	@tools/setup test
	@tests/run asan

fuzz:
	@tools/setup test
	@tests/run fuzz

fresh:
	@tests/fresh

matrix:
	@tools/setup matrix
	@$(MAKE) --no-print-directory all
	@CELLBLOCK_BUILD=$(BUILD) tests/matrix

bench:
	@tools/setup bench
	@$(MAKE) --no-print-directory all
	bench/start
	bench/overhead
	bench/limits
	bench/network

install: all
	$(MESON) configure $(BUILD) --prefix $(abspath $(PREFIX))
	DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR))) $(MESON) install -C $(BUILD)

format:
	@tools/setup format
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf $(BUILD) build-asan build-fuzz build-matrix

help:
	@echo 'make            build; the program is then at $(BUILD)/cellblock'
	@echo 'make demo       install the packages that building needs, build, and show what a cell stops'
	@echo 'make check      install the packages that testing needs, build, and run every test'
	@echo 'make quick      the unit tests and a part of the system tests, in less than two minutes'
	@echo 'make asan       build with address and undefined-behaviour sanitizers, and run the tests on that'
	@echo 'make fuzz       fuzz the parsers for a bounded time (FUZZ_SECONDS, 30 unless set)'
	@echo 'make bench      start time, overhead and network against bare and peers, as ratios'
	@echo 'make matrix     tests on the oldest kernel, in an emulated machine (tests/matrix has options for others)'
	@echo 'make fresh      `make demo` and `make check` in a clean Debian 12, from a clone of HEAD (needs root)'
	@echo 'make install    into PREFIX ($(PREFIX)), below DESTDIR if that is set'
	@echo 'make format     clang-format over the C sources'
	@echo 'make clean      remove the build directories'

.PHONY: all demo check quick asan fuzz fresh matrix bench install format clean help
