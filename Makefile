# make demo: train the three boosters on generated data; make test: everything that is checked; make docs: the site.
# All create .venv on first use and need nothing but Python 3.10 or later and make. WORKERS says how many processes test.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test docs pictures oldest newest dist pythons soak bench clean

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,docs]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/python -m stochasticrank_objectives demo

test: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) docs
	$(BIN)/python -m pytest -n $(WORKERS)
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest tests/test_bounds.py

# The site goes to site/; a dead link, a missing page or a public name without a place in the reference is an error.
# Nothing is fetched while it is built. The variable turns off an advertisement that mkdocs-material prints.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of docs/how-it-works.md; they are committed, so this is needed only when they change.
pictures: $(VENV)/installed
	$(BIN)/python docs/pictures.py

# The oldest versions that pyproject.toml admits, in an environment of their own. Left out are a comparison with XGBoost's
# own lambdas, of which XGBoost 2.0 cannot leave out the normalisation, a training that Dask tries again, after which XGBoost 2.0
# cannot connect in that process any more, and notebooks, in which LightGBM 4.0 prints a warning
# about any custom objective.
oldest:
	test -x $(VENV)-oldest/bin/python || $(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-oldest/bin/python -m pip install --quiet 'numpy==1.24.*' 'numba==0.59.*' 'xgboost==2.0.*' 'lightgbm==4.0.*' \
		'catboost==1.2.2' 'scikit-learn==1.4.*' 'pandas==2.0.*' 'pyarrow==15.*' --editable '.[test]'
	$(VENV)-oldest/bin/python -m pytest -n $(WORKERS) --ignore tests/test_notebooks.py \
		--deselect tests/test_baselines.py::test_xgboost_has_the_same_derivatives \
		--deselect 'tests/adapters/test_dask.py::test_a_training_that_is_tried_again[xgboost]'

# The newest versions that the registry has, pre-releases among them, in an environment of their own.
newest:
	test -x $(VENV)-newest/bin/python || $(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-newest/bin/python -m pip install --quiet --upgrade --pre --upgrade-strategy eager numpy numba xgboost lightgbm catboost \
		scikit-learn pandas --editable '.[test]'
	$(VENV)-newest/bin/python -m pytest -n $(WORKERS) --ignore tests/test_notebooks.py

# A wheel and an sdist in dist/: built, looked into, installed into empty environments, and trained with.
dist:
	test -x $(VENV)-dist/bin/python || $(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --upgrade pip build twine
	rm -rf dist
	$(VENV)-dist/bin/python -m build --outdir dist
	$(VENV)-dist/bin/python -m twine check --strict dist/*
	$(VENV)-dist/bin/python .ci/check_dist.py dist

# The wheel of `make dist` in every interpreter that PYTHONS names: installed, imported, a gradient computed.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
pythons:
	$(VENV)-dist/bin/python .ci/check_dist.py dist --import-only $(addprefix --python ,$(PYTHONS))

# Random trainings and random bad input against what must always hold, for so many minutes; see benchmarks/soak.py.
MINUTES ?= 10
soak: $(VENV)/installed
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) site .numba_cache .mypy_cache .ruff_cache .pytest_cache build dist *.egg-info $(VENV)-oldest $(VENV)-newest $(VENV)-dist
