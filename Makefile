# Roquet's commands. Each sets up .venv by itself the first time; all it needs is Python 3.11+ and a package index.

BIN := .venv/bin
PYTHON_CODE := src simulation tests tools harness demos $(wildcard bench examples)

DEMO_ARGS ?=
FAILOVER_ARGS ?=
CI_FLIGHTS ?= 40000
CI_FLIGHTS_WITHOUT_JAVA ?= 2000
HUNT_ROUNDS ?= 20
FUZZ_SECONDS ?= 300
FUZZ_ARGS ?=
CI_FUZZ_SECONDS ?= 20
KILL_ROUNDS ?= 20
CI_KILL_ROUNDS ?= 3
KILL_MASTER_ROUNDS ?= 50
CI_KILL_MASTER_ROUNDS ?= 5
ROLLING_ROUNDS ?= 3
CI_ROLLING_ROUNDS ?= 1
KILL_MASTER_ARGS ?=
KILL_SPARK_ROUNDS ?= 50
KILL_SPARK_STORE_ROUNDS ?= 17
KILL_SPARK_STORE_KINDS ?= delta iceberg materialize materialize-iceberg
KILL_SPARK_MESSAGES ?= 400000
KILL_SPARK_KINDS ?= delta iceberg materialize sink
# The others are killed in the S3 server.
CI_KILL_SPARK_KINDS ?= delta iceberg sink
CI_KILL_SPARK_STORE_KINDS ?= delta materialize
CI_KILL_SPARK_ROUNDS ?= 1
CI_KILL_SPARK_MESSAGES ?= 60000
PYTEST_ARGS ?=
# Tests that have to cover the lower layers by themselves. `make ci` runs them once, in `coverage`, and the others in `test`.
COVERING := tests/test_tidy.py tests/model tests/rules tests/wire tests/metrics tests/store
TESTS_LEFT_OUT ?=
INTEROP_ARGS ?=
SIM_SEEDS ?= 2000
CI_SIM_SEEDS ?= 100
ATTACK ?= full
ATTACK_ARGS ?=
CI_INTEROP_ARGS ?= -k "not 4.9.7 and not grpc_long and not rocksdb"
BENCH_ARGS ?=
PYTHONS ?=
SOAK_MINUTES ?= 60
PROFILE_ARGS ?=
# Each runs whether or not the one before it failed, and the report is made of what they have measured.
BENCH_WORKS = "system $(BENCH_ARGS)" footprint lone metrics_cost access_cost growth clients produce pop grpc_proxy keys takeover balance transactions replication \
	filters filter_scan timers "timers --level --waiting 1000 --out build/bench-timers-level.json" store spark lake sink \
	spark_trigger spark_memory spark_driver_memory lab "overload --seconds 60" "soak --work batches --minutes 10" "connections half" "connections scale" dashboard

# Compiled code is kept even where the shell says otherwise: processes that share the tests, and the
# commands that tests start, would each compile everything again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo failover test test-slow test-docs test-spark wheel pythons check lint types contracts coverage format hunt fuzz kill kill-master rolling attack kill-spark sim interop bench \
	soak profile ci demo-slice demo-without-java lock map clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' Makefile

install: .venv/.installed ## .venv with everything in it

.venv/.installed: tools/install/install.sh requirements/build.txt requirements/dev.txt pyproject.toml $(wildcard src/roquet/wire/records/_*.p?[xi])
	@tools/install/install.sh

demo: install ## 336,776 flights: producer, broker, consumers, Spark, a table, a report
	$(BIN)/roquet demo $(DEMO_ARGS)

failover: install ## three brokers: the master is killed, frozen and cut off under load; nothing is lost; a report
	$(BIN)/python -m demos.failover $(FAILOVER_ARGS)

test: install ## every test, shared by as many processes as there are cores
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup \
	  --ignore tests/interop --ignore tests/spark_suite --ignore tests/attack --ignore tests/docs \
	  $(addprefix --ignore ,$(TESTS_LEFT_OUT)) $(PYTEST_ARGS)

test-spark: install ## restarts, rates, options, tables and the sink, each on a Spark of its own
	$(BIN)/python -m pytest -m spark_suite --timeout 600 -n 2 --dist loadfile tests/cli/demo tests/lab tests/lake tests/spark tests/spark_suite $(PYTEST_ARGS)

test-slow: install ## planted defects that simulations find, benchmarks with their smallest inputs, examples, clusters of processes
	$(BIN)/python -m pytest -m slow -n auto --maxprocesses 8 --dist load tests/bench tests/cli tests/dashboard tests/demos tests/simulation tests/tools \
	  tests/conversation/test_examples.py tests/client/reading/test_graceful_stop.py $(PYTEST_ARGS)

test-docs: install ## the commands of every page, typed in an environment that has what the page says to install; wheels
	$(BIN)/python -m pytest -m docs -n 2 --dist load tests/docs tests/tools/test_wheels.py $(PYTEST_ARGS)

wheel: install ## dist/roquet-….whl for the Python of .venv, or for several (PYTHONS="python3.11 python3.13")
	$(BIN)/python tools/install/wheels.py $(PYTHONS)

pythons: ## the tests without Spark on other Pythons (PYTHONS="python3.12 python3.13")
	tools/gates/other_pythons.sh $(PYTHONS)

check: lint types contracts coverage ## all that needs no broker and no Spark

lint: install ## ruff: rules and format
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/ruff format --check $(PYTHON_CODE)

types: install ## mypy, and pyright for examples and mistakes of users, both strict
	$(BIN)/mypy
	$(BIN)/basedpyright

contracts: install ## the layers: who may import whom
	PYTHONPATH=src:. $(BIN)/lint-imports

coverage: install ## model, rules, wire and store, covered by their own tests
	$(BIN)/coverage run -m pytest -n auto --maxprocesses 8 --dist loadgroup $(COVERING)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

format: install ## ruff puts the code into shape
	$(BIN)/ruff check --fix $(PYTHON_CODE)
	$(BIN)/ruff format $(PYTHON_CODE)

hunt: install ## what holds for all examples, with new ones in each round (HUNT_ROUNDS)
	for round in $$(seq $(HUNT_ROUNDS)); do \
		$(BIN)/python -m pytest -m hypothesis --hypothesis-profile hunt \
		  -n auto --maxprocesses 8 --dist loadgroup || exit 1; done

fuzz: install ## compiled inner loops beside the Python forms, under gcc's address sanitizer (FUZZ_SECONDS)
	$(BIN)/python tools/gates/fuzz_speedups.py --sanitize --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

kill: install ## kill -9 of a broker under load, again and again (KILL_ROUNDS)
	$(BIN)/python -m bench.kill --rounds $(KILL_ROUNDS)

kill-master: install ## kill -9, SIGSTOP and cut connections of masters, replicas, controllers and etcd under load (KILL_MASTER_ROUNDS)
	$(BIN)/python -m bench.kill_master --rounds $(KILL_MASTER_ROUNDS) $(KILL_MASTER_ARGS)

rolling: install ## every process of a replicated cluster stopped and started under load, in the order of an upgrade (ROLLING_ROUNDS)
	$(BIN)/python -m bench.rolling --rounds $(ROLLING_ROUNDS)

attack: install ## failing disks, poison messages, worst bodies, hostile text, damaged files, odd clocks (ATTACK=short|full)
	ATTACK=$(ATTACK) $(BIN)/python -m pytest -m attack --timeout 1800 -n 2 --dist loadfile tests/attack $(ATTACK_ARGS)

kill-spark: install ## kill -9 of driver, Java, worker and broker under archives of each kind, tables of latest states, some of them in an S3 server, and a sink (KILL_SPARK_ROUNDS)
	for kind in $(KILL_SPARK_KINDS); do \
		$(BIN)/python -m bench.kill_spark --kind $$kind --rounds $(KILL_SPARK_ROUNDS) \
			--messages $(KILL_SPARK_MESSAGES) || exit 1; done
	for kind in $(KILL_SPARK_STORE_KINDS); do \
		$(BIN)/python -m bench.kill_spark --kind $$kind --store s3 --rounds $(KILL_SPARK_STORE_ROUNDS) \
			--messages $(KILL_SPARK_MESSAGES) || exit 1; done

sim: install ## clusters that live and die, days that pass, masters that are replaced, in virtual time (SIM_SEEDS)
	$(BIN)/python -m simulation --seeds $(SIM_SEEDS)

interop: install ## against genuine clients and the genuine broker, where they can run
	$(BIN)/python -m pytest -m interop --timeout 600 -n 2 --dist loadfile tests/interop $(INTEROP_ARGS)

bench: install ## the measured table; beside the genuine broker where Java and Maven are
	@failed=; for work in $(BENCH_WORKS); do \
		echo "bench/$$work"; $(BIN)/python -m bench.$$work || failed="$$failed $${work%% *}"; done; \
	$(BIN)/python -m bench.report --failed "$$failed" && test -z "$$failed"

soak: install ## by hand: an hour of mixed load; memory, p99 and descriptors stay flat (SOAK_MINUTES)
	$(BIN)/python -m bench.soak --minutes $(SOAK_MINUTES)

profile: install ## by hand: flame graphs of the broker in bench/profile, by py-spy and perf where they are (PROFILE_ARGS)
	$(BIN)/python -m bench.flame_graphs $(PROFILE_ARGS)

# Browsers, Spark and other processes on a busy machine have their own clocks: tests that fail are tried once more, alone, and
# have to pass then; both tries are printed. The target, the variable of its pytest's arguments, the arguments.
tried-twice = $(MAKE) $(1) $(2)='$(3)' || $(MAKE) $(1) $(2)='$(3) --last-failed -n 0'

ci: export TESTS_LEFT_OUT = $(COVERING)
ci: check ## what has to pass before a change goes in
	$(call tried-twice,test,PYTEST_ARGS)
	$(MAKE) demo-slice
	$(MAKE) demo-without-java
	$(call tried-twice,test-slow,PYTEST_ARGS)
	$(call tried-twice,test-docs,PYTEST_ARGS)
	$(MAKE) failover
	$(MAKE) fuzz FUZZ_SECONDS=$(CI_FUZZ_SECONDS)
	$(MAKE) kill KILL_ROUNDS=$(CI_KILL_ROUNDS)
	$(MAKE) kill-master KILL_MASTER_ROUNDS=$(CI_KILL_MASTER_ROUNDS)
	$(MAKE) rolling ROLLING_ROUNDS=$(CI_ROLLING_ROUNDS)
	$(MAKE) attack ATTACK=short
	$(MAKE) sim SIM_SEEDS=$(CI_SIM_SEEDS)
	$(call tried-twice,test-spark,PYTEST_ARGS)
	$(MAKE) kill-spark KILL_SPARK_KINDS='$(CI_KILL_SPARK_KINDS)' KILL_SPARK_STORE_KINDS='$(CI_KILL_SPARK_STORE_KINDS)' \
		KILL_SPARK_ROUNDS=$(CI_KILL_SPARK_ROUNDS) KILL_SPARK_STORE_ROUNDS=$(CI_KILL_SPARK_ROUNDS) \
		KILL_SPARK_MESSAGES=$(CI_KILL_SPARK_MESSAGES)
	$(call tried-twice,interop,INTEROP_ARGS,$(CI_INTEROP_ARGS))

demo-slice: install
	$(BIN)/roquet demo --flights $(CI_FLIGHTS)

demo-without-java: install
	$(BIN)/python tools/gates/without_java.py $(BIN)/roquet demo --flights $(CI_FLIGHTS_WITHOUT_JAVA)

lock: install ## requirements/*.txt from pyproject.toml
	tools/install/lock.sh

map: install ## what is generated: ARCHITECTURE.md's map of packages, the tables in docs/reference
	$(BIN)/python tools/generators/architecture_map.py --write
	$(BIN)/python tools/generators/broker_signals.py --write
	$(BIN)/python tools/generators/protocol_table.py --write
	$(BIN)/python tools/generators/settings_table.py --write
	$(BIN)/python tools/generators/metrics_table.py --write
	$(BIN)/python tools/generators/monitoring_files.py --write
	$(BIN)/python tools/generators/grpc_code.py --write
	$(BIN)/python tools/generators/api_reference.py --write

clean: ## everything that can be made again, but .venv
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests tools harness demos -name __pycache__ -type d -prune -exec rm -rf {} +
