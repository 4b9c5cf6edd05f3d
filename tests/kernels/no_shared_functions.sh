#!/bin/sh
# no_shared_functions.sh NM OBJECT...: fails when an isa_*.o defines a symbol that other files may share.
nm=$1
shift
seen=0
for object in "$@"; do
  case $object in */isa_*) ;; *) continue ;; esac
  seen=$((seen + 1))
  if "$nm" --defined-only "$object" | grep -E ' [VWu] '; then
    echo "$object defines the shared functions above" >&2
    exit 1
  fi
done
if [ "$seen" -lt 3 ]; then
  echo "expected at least 3 isa_*.o, found $seen" >&2
  exit 1
fi
