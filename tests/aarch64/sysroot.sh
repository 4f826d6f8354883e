#!/usr/bin/env bash
# Makes DIRECTORY/sysroot: Debian's Python for arm64 with its libraries and headers, and a python3 that this
# machine can start. Needs no root and changes nothing of this machine's packages: apt works in DIRECTORY/apt.
set -euo pipefail
directory=$(realpath "$1")
source=$(dirname "$(realpath "$0")")
for program in apt-get dpkg-deb aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v "$program" >/dev/null || {
        echo "missing: $program; on Debian: apt-get install gcc-aarch64-linux-gnu qemu-user" >&2
        exit 1
    }
done

apt="$directory/apt"
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
touch "$apt/status" # nothing is installed, so everything that Python needs is downloaded
packages() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
        -o APT::Install-Recommends=false -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" \
        -o Dir::State::status="$apt/status" -o Dir::Cache="$apt" "$@"
}
echo "downloading Debian's Python for arm64 into $apt"
packages update
packages autoclean # of an earlier time: versions that have been replaced
packages install --download-only --yes python3 libpython3-dev libstdc++6

# Moved to its name at the end, so that an interrupted run leaves nothing that looks finished.
sysroot="$directory/sysroot"
rm -rf "$sysroot" "$sysroot.part"
mkdir "$sysroot.part"
for package in "$apt"/archives/*.deb; do
    dpkg-deb --extract "$package" "$sysroot.part"
done
python=usr/bin/$(readlink "$sysroot.part/usr/bin/python3")
rm "$sysroot.part/usr/bin/python3"
cc -static -O1 -D_GNU_SOURCE "-DSYSROOT=\"$sysroot\"" "-DPROGRAM=\"$sysroot/$python\"" \
    -o "$sysroot.part/usr/bin/python3" "$source/launcher.c"
mv "$sysroot.part" "$sysroot"
