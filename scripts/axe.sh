#!/bin/sh
# The report is tested for accessibility by axe-core. Fetches it from npm into build/, which is not kept; elsewhere says how, and the test is skipped.
folder="$(dirname "$0")/../build/axe"
[ -f "$folder/package/axe.min.js" ] && exit 0
if command -v npm >/dev/null && mkdir -p "$folder" && cd "$folder" && npm pack --silent axe-core@4 >/dev/null 2>&1; then
    tar -xzf axe-core-*.tgz package/axe.min.js && rm axe-core-*.tgz && exit 0
fi
echo "No axe-core here: the report's accessibility test is skipped (install npm, then: sh scripts/axe.sh)."
