#!/usr/bin/env bash
# Print the name of a Python 3.11 or newer that can make virtual environments; say what to do if there is none.
set -uo pipefail

CHECK='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$CHECK" >/dev/null 2>&1; then
        printf '%s\n' "$candidate"
        exit 0
    fi
done

{
    if command -v python3 >/dev/null 2>&1; then
        echo "python: Headwater needs Python 3.11 or newer with the venv module; python3 here is $(python3 -V 2>&1 | cut -d' ' -f2)."
    else
        echo "python: none found; Headwater needs Python 3.11 or newer."
    fi
    echo "  Install one (on Debian and Ubuntu: apt-get install python3 python3-venv),"
    echo "  or name one: make venv PYTHON=/path/to/python3.12"
} >&2
exit 1
