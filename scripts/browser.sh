#!/bin/sh
# The report is tested in a real browser. Installs Chromium when root on Debian or Ubuntu; elsewhere says how, and the test is skipped.
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
if [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing chromium for the report's test"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null && exit 0
fi
echo "No Chromium here: the report's test in a browser is skipped (sudo apt-get install chromium)."
