#!/bin/sh
# Debian and Ubuntu ship `venv` without `ensurepip` unless python3-venv is installed; pip can bring itself in.
set -e
"$1" -m venv --clear --without-pip .venv
"$1" -m pip --python .venv/bin/python install --quiet pip
