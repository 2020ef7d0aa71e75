#!/bin/sh
# Checks the two commands of README.md on a fresh system: makes one with mmdebstrap, copies the sources there, and runs
# `make mnist` and `make test` with compiler warnings as errors. The status is theirs; the last line counts the tests.
#
#   tests/fresh_machine.sh SUITE [COMPILER]
#
# SUITE: bookworm, trixie, noble ... COMPILER: a package with a command of its name, as gcc-13 or clang; without it the
# system's gcc. The variable MIRROR names another mirror, KEYRING its keys, http_proxy a proxy; KEEP=1 keeps the system;
# DO is another command than 'make mnist && make test'.
#
# It needs root and the package mmdebstrap, for suites of Ubuntu also ubuntu-keyring, and 4 GB in TMPDIR (/var/tmp).
# All mounts are in mount namespaces of their own, so they go away however the script ends.
set -eu

suite=${1:?which suite? bookworm, trixie, noble ...} compiler=${2:-}
case $suite in
jammy | noble | plucky | questing)
  mirror=${MIRROR:-http://archive.ubuntu.com/ubuntu} components=main,universe
  keyring=${KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg} ;;
*)
  mirror=${MIRROR:-http://deb.debian.org/debian} components=main
  keyring=${KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg} ;;
esac
case $compiler in
clang*) packages=,$compiler,libomp${compiler#clang}-dev ;; # its OpenMP is a package for each version
?*) packages=,$compiler ;;
*) packages= ;;
esac
[ "$(id -u)" = 0 ] || { echo "fresh_machine.sh: must run as root" >&2; exit 2; }
command -v mmdebstrap >/dev/null || { echo "fresh_machine.sh: apt-get install mmdebstrap" >&2; exit 2; }
cd "$(dirname "$0")/.."

# Nothing is mounted here outside of the namespaces below, so removing the folder cannot reach through a mount.
root=$(mktemp -d "${TMPDIR:-/var/tmp}/mgpulua-$suite-XXXXXX")
chmod 755 "$root" # apt downloads as a user of its own
[ "${KEEP:-}" ] && echo "fresh_machine.sh: keeps $root" || trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT TERM
unshare --mount --fork --kill-child mmdebstrap --variant=apt --components="$components" --keyring="$keyring" \
  --include="make,ca-certificates$packages" "$suite" "$root" "$mirror"

printf '127.0.0.1 localhost\n::1 localhost\n' >>"$root/etc/hosts" # as an installed system has it
mkdir -p "$root/root/mgpulua"
if git rev-parse --git-dir >/dev/null 2>&1; then
  git ls-files -co --exclude-standard -z | tar --null -T - --ignore-failed-read -c
else
  tar -c --exclude=./build .
fi | tar -x -C "$root/root/mgpulua"

cat >"$root/root/commands.sh" <<EOF
cd /root/mgpulua
export WERROR=-Werror${compiler:+ CC=$compiler} # variables of the environment: tests call make, too
set -ex
${DO:-make mnist && make test}
EOF
unshare --mount --pid --fork --kill-child sh -ec '
  mount --make-rprivate /
  mount -t proc proc "$1/proc"
  mount --rbind /dev "$1/dev"
  mount --rbind /sys "$1/sys"
  exec chroot "$1" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 TERM="${TERM:-dumb}" ${http_proxy:+http_proxy="$http_proxy"} sh /root/commands.sh' sh "$root"
