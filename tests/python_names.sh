#!/bin/sh
# python_names.sh SOURCE: no Python file of the tree names what it neither defines nor imports (pyflakes). Many of them need
# libraries that this machine has not, so that no test runs them.
set -u
found=$(find "$1" -name '*.py' ! -path '*/build*' -exec pyflakes3 {} + 2>&1 | grep -v 'imported but unused')
[ -z "$found" ] && exit
echo "$found"
exit 1
