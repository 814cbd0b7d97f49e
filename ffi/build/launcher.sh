#!/bin/sh
# Runs forge with the permissions that deno.json grants it ("permissions": "forge") and no others.
# Can be called through links. Looks for Deno in the tree's bin/, on PATH, and then uses npx.
set -eu

deno_version=2.9.6

# Follow links to find the tree.
self=$0
while [ -L "$self" ]; do
  target=$(readlink "$self")
  case $target in
    /*) self=$target ;;
    *) self=$(dirname "$self")/$target ;;
  esac
done
root=$(CDPATH='' cd "$(dirname "$self")/../.." && pwd -P)

# Succeeds if the program $1 is Deno 2.9 or newer.
is_recent() {
  version=$("$1" --version 2>/dev/null) || return 1
  version=${version#deno }
  major=${version%%.*}
  version=${version#*.}
  minor=${version%%.*}
  [ "$major" -gt 2 ] || { [ "$major" -eq 2 ] && [ "$minor" -ge 9 ]; }
} 2>/dev/null

# A batch may run for days. This flag makes V8 collect garbage early, so that the process does not grow
# after the first lines. Other commands would only start more slowly.
heap=
# Listening address of forge serve, and the permission for hosts: processes that divide a model may be
# anywhere.
host=
net=
before=${1-}
for argument; do
  case $argument in
    --batch | --batch=*) heap=--v8-flags=--optimize-for-size ;;
    --host=*) host=${argument#--host=} ;;
    --distributed) net=--allow-net ;;
  esac
  if [ "$before" = --host ]; then host=$argument; fi
  before=$argument
done
if [ "${1-}" != serve ]; then host=; fi
case $host in
  *,*) host= ;;
  [![]*:*) host="[$host]" ;;
esac

# Prints the host and port of the URL $1; prints nothing for an unusual URL.
host_of() {
  address=${1#*://}
  address=${address%%[/?#]*}
  address=${address##*@}
  case $address in
    *[!A-Za-z0-9.:_-]* | '') ;;
    *) echo "$address" ;;
  esac
}

# Other hubs with their subdomains, and the hosts that they redirect to.
hub=
for endpoint in "${HF_ENDPOINT-}" "${MODELSCOPE_ENDPOINT-}"; do
  if [ -z "$endpoint" ]; then continue; fi
  address=$(host_of "$endpoint")
  case $address in
    *[!0-9.:]*) address="$address,*.$address" ;;
  esac
  hub=$hub${hub:+${address:+,}}$address
done
case ${FORGE_HUB_HOSTS-} in
  *[!A-Za-z0-9.:,*_-]*) ;;
  *) hub=$hub${FORGE_HUB_HOSTS:+",$FORGE_HUB_HOSTS"} ;;
esac
hub=${hub#,}
added=${hub}${hub:+${host:+,}}${host}
if [ -z "$net" ] && [ -n "$added" ]; then
  net="--allow-net=huggingface.co,*.huggingface.co,*.hf.co,modelscope.cn,*.modelscope.cn,127.0.0.1,localhost,[::1],$added"
fi

# Additional permissions that the user chose: a folder of libraries, and hosts. With the lock file,
# as by "deno task", Deno would download every package that it lists, those of tests too.
set -- run --quiet --no-prompt --no-lock ${heap:+"$heap"} --config "$root/deno.json" --permission-set=forge \
  ${FORGE_LIBRARY_PATH:+"--allow-ffi=$root/build,$root/lib,$FORGE_LIBRARY_PATH"} \
  ${net:+"$net"} \
  "$root/main.ts" "$@"

# Deno keeps packages and compiled sources in the home folder, or in the tree if home is not writable.
home=${HOME-}
if [ -z "${DENO_DIR-}${XDG_CACHE_HOME-}" ] && { [ -z "$home" ] || [ ! -w "$home" ]; } &&
  [ ! -w "$home/.cache" ] && [ -w "$root" ]; then
  export DENO_DIR="$root/build/deno"
fi

if [ -x "$root/bin/deno" ]; then
  exec "$root/bin/deno" "$@"
elif is_recent deno; then
  exec deno "$@"
elif command -v npx >/dev/null 2>&1; then
  # Suppress npm's spinner and its notices of new versions.
  export npm_config_progress=false npm_config_update_notifier=false npm_config_fund=false
  exec npx --loglevel=error -y "deno@$deno_version" "$@"
fi
echo "forge: no Deno 2.9 or newer found; install it (https://deno.com) or Node.js (for npx)" >&2
exit 1
