#!/bin/sh
# Installs forge with everything it needs into ~/.local: downloads the archive of this platform, checks
# its SHA-256, unpacks it and links the command.
#
#   FORGE_RELEASE      address of the folder of the release
#   FORGE_HOME         folder of the files (default: ~/.local/share/forge)
#   FORGE_INSTALL_DIR  folder of the command (default: ~/.local/bin)
set -eu

release=${FORGE_RELEASE-@RELEASE@}
home=${FORGE_HOME-$HOME/.local/share/forge}
bin=${FORGE_INSTALL_DIR-$HOME/.local/bin}

fail() {
  echo "forge: error: $1" >&2
  exit 1
}

case $(uname -s) in
  Linux) system=linux ;;
  Darwin) system=darwin ;;
  *) fail "no archive for $(uname -s); valid are Linux and macOS, and Windows by install.ps1" ;;
esac
case $(uname -m) in
  x86_64 | amd64) processor=x86_64 ;;
  aarch64 | arm64) processor=aarch64 ;;
  *) fail "no archive for the processor $(uname -m); valid are x86_64 and aarch64" ;;
esac
if [ "$system" = linux ] && ls /lib/ld-musl-* >/dev/null 2>&1 && ! ls /lib*/ld-linux* >/dev/null 2>&1; then
  fail "the C library of this system is musl; forge and Deno need glibc 2.28 or newer"
fi

if [ -n "$(ls -A "$home" 2>/dev/null)" ] && [ ! -e "$home/bin/forge" ]; then
  fail "$home has other files than forge's; FORGE_HOME names another folder"
fi

# Writes the file $1 of the release to $2.
download() {
  if command -v curl >/dev/null 2>&1; then
    curl -fsSL --retry 3 "$release/$1" -o "$2"
  elif command -v wget >/dev/null 2>&1; then
    wget -q "$release/$1" -O "$2"
  else
    fail "neither curl nor wget is installed"
  fi || fail "cannot download $release/$1"
}

# Prints the SHA-256 of the file $1.
checksum() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1"
  else
    shasum -a 256 "$1"
  fi | cut -d ' ' -f 1
}

name=forge-$system-$processor
archive=$name.tar.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
download SHA256SUMS "$work/SHA256SUMS"
expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$work/SHA256SUMS")
[ -n "$expected" ] || fail "the release has no $archive"
download "$archive" "$work/$archive"
actual=$(checksum "$work/$archive")
[ "$actual" = "$expected" ] || fail "the SHA-256 of $archive is $actual, not $expected; try again"

# The old files stay until the new ones are complete, on the same disk.
rm -rf "$home.new" "$home.old"
mkdir -p "$home.new" "$bin"
tar -xzf "$work/$archive" -C "$home.new" --strip-components=1 || fail "cannot unpack $archive"
if [ -e "$home" ]; then mv "$home" "$home.old"; fi
mv "$home.new" "$home"
rm -rf "$home.old"
ln -sf "$home/bin/forge" "$bin/forge"
echo "installed $("$bin/forge" --version) as $bin/forge"
case :$PATH: in
  *:"$bin":*) ;;
  *) echo "to find it by name, add its folder to PATH: export PATH=\"$bin:\$PATH\"" ;;
esac
