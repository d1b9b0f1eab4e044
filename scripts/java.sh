#!/usr/bin/env bash
# Make sure that Spark will find Java 17 or newer. Silent when it does.
#
# Spark takes $JAVA_HOME/bin/java if JAVA_HOME is set, else the java on PATH; so does this script. If neither is good enough
# and this machine allows it (root and apt-get), a headless Java runtime is installed. Otherwise it says what to do and fails.
set -uo pipefail

NEEDED=17

say() { printf '%s\n' "$*" >&2; }

# The major version of the java given, or nothing. "1.8.0_392" is 8, "17.0.15" is 17, "21-ea" is 21.
major_of() {
    "$1" -version 2>&1 | sed -n -E 's/^[^"]*version "(1\.)?([0-9]+).*/\2/p' | head -n 1
}

good() { [ -n "${1:-}" ] && [ "$1" -ge "$NEEDED" ]; }

advice() {
    say "  Install a Java runtime, version $NEEDED or newer, for example:"
    say "    Debian, Ubuntu   apt-get install openjdk-17-jre-headless"
    say "    Fedora           dnf install java-21-openjdk-headless"
    say "    macOS            brew install openjdk@17"
    say "  or set JAVA_HOME to one that is already there."
}

if [ -n "${JAVA_HOME:-}" ]; then
    if [ ! -x "$JAVA_HOME/bin/java" ]; then
        say "java: JAVA_HOME is set to $JAVA_HOME, which holds no bin/java."
        say "  Correct JAVA_HOME, or unset it to use the java on PATH."
        exit 1
    fi
    found=$(major_of "$JAVA_HOME/bin/java")
    good "$found" && exit 0
    say "java: JAVA_HOME names Java ${found:-of unknown version}; Spark needs $NEEDED or newer."
    say "  Set JAVA_HOME to a newer one, or unset it to use the java on PATH."
    exit 1
fi

found=""
if command -v java >/dev/null 2>&1; then
    found=$(major_of java)
    good "$found" && exit 0
fi

if [ -n "$found" ]; then
    problem="java: the java on PATH is version $found; Spark needs $NEEDED or newer."
else
    problem="java: none found; Spark needs Java $NEEDED or newer."
fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "$problem"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    for package in openjdk-17-jre-headless default-jre-headless; do
        say "  Installing $package with apt-get ..."
        if apt-get install -y -q --no-install-recommends "$package" >"$log" 2>&1 ||
            { apt-get update -q >"$log" 2>&1 && apt-get install -y -q --no-install-recommends "$package" >>"$log" 2>&1; }; then
            hash -r
            if command -v java >/dev/null 2>&1 && good "$(major_of java)"; then
                rm -f "$log"
                say "  Java $(major_of java) is ready."
                exit 0
            fi
        fi
    done
    say "  That did not help. The last lines of apt-get were:"
    tail -n 5 "$log" | sed 's/^/    /' >&2
    rm -f "$log"
    advice
    exit 1
fi

say "$problem"
advice
exit 1
