#!/bin/sh
# Headless MuJoCo draws through EGL. Says what is missing, and installs it when root on Debian or Ubuntu.
[ "$(uname -s)" = Linux ] || exit 0
missing=""
for pair in libEGL.so.1:libegl1 libGL.so.1:libgl1 libGLX_mesa.so.0:libglx-mesa0 swrast_dri.so:libgl1-mesa-dri; do
    file=${pair%%:*} package=${pair##*:}
    [ -n "$(find /usr/lib /usr/lib64 /lib /lib64 -name "$file*" -print -quit 2>/dev/null)" ] || missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing$missing for headless rendering"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
else
    echo "Headless rendering of Reacher and Cube needs:$missing"
    echo "  sudo apt-get install$missing"
fi
