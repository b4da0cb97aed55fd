#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# program_test.sh EXIT_CODE PATTERN COMMAND...: passes if COMMAND ends with that code and a line of its output matches PATTERN.
expected=$1
pattern=$2
shift 2
output=$("$@" 2>&1)
code=$?
printf '%s\n' "$output"
if [ "$code" != "$expected" ]; then
  echo "exit code $code, expected $expected"
  exit 1
fi
if ! printf '%s\n' "$output" | grep -Eq -e "$pattern"; then
  echo "no line matches: $pattern"
  exit 1
fi
