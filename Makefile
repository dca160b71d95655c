# Every target does its own set-up: a bare clone and Python >= 3.11 are enough. `make` alone lists them.
#
# PYTHON=/path/to/python3.12 chooses the interpreter, VENV=dir the place of the virtual environment.

VENV ?= .venv
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
export VENV

.DEFAULT_GOAL = help
.PHONY: help demo test test-slow test-peers check format clean setup-run setup-dev setup-peers

help:
	@echo 'make demo       train a small Chinese GPT and walk 小猫爱吃 through it, up to 鱼 (about 3 minutes)'
	@echo '                训练一个小型中文 GPT，带“小猫爱吃”走过整个网络，直到“鱼”（约 3 分钟）'
	@echo 'make test       the tests                      运行测试'
	@echo 'make test-slow  the tests that take minutes    运行耗时数分钟的测试'
	@echo 'make test-peers the tests against llama.cpp and published weights    与 llama.cpp 及公开权重对照的测试'
	@echo 'make check      format, lint, types, imports, spelling    检查格式、规范、类型、依赖方向与拼写'
	@echo 'make format     put the sources in their format           整理代码格式'
	@echo 'make clean      remove what make made, but not runs/      清除 make 的产物，保留 runs/'
	@echo
	@echo 'Each sets itself up on its first run. PYTHON=python3.12 chooses the interpreter.'
	@echo '首次运行会自动完成安装；可用 PYTHON=python3.12 指定解释器。'

demo: setup-run
	$(BIN)/transpect demo

test: setup-dev
	$(PYTEST) -n auto --dist worksteal

test-slow: setup-dev
	$(PYTEST) -m 'slow and not weights' -n auto --dist worksteal

test-peers: setup-peers
	$(PYTEST) -m weights
	$(PYTEST) tests/parity/test_parity_llama_cpp.py

check: setup-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: setup-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	if [ -f '$(VENV)/pyvenv.cfg' ]; then rm -rf '$(VENV)'; fi
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

setup-run:
	@sh scripts/setup run

setup-dev:
	@sh scripts/setup dev

setup-peers:
	@sh scripts/setup peers
