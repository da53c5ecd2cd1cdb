# Two commands do all the set-up, each in a virtual environment of its own.
PYTHON ?= python3

.PHONY: demo test check clean

demo: .venv-demo/installed  ## install the light package, run the main job end to end
	PATH="$(CURDIR)/.venv-demo/bin:$$PATH" sh fixtures/demo.sh

test: .venv-test/installed  ## install the test extra, run every check and test
	PATH="$(CURDIR)/.venv-test/bin:$$PATH" sh tests/check.sh

.venv-demo/installed: pyproject.toml $(shell find graphtools converters -type f -not -name '*.pyc')
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip install --quiet --upgrade pip
	.venv-demo/bin/python -m pip install --quiet --force-reinstall --no-deps .
	.venv-demo/bin/python -m pip install --quiet .
	touch $@

.venv-test/installed: pyproject.toml
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/python -m pip install --quiet --upgrade pip
	.venv-test/bin/python -m pip install --quiet --editable '.[test]'
	.venv-test/bin/python -m pip install --quiet --no-deps speakerlab-slim speechbrain wespeaker-unofficial
	touch $@

clean:
	rm -rf .venv-demo .venv-test build dist
