#!/bin/sh
# Fetch the libraries of the page again, as npm publishes them, and compare their digests.
#   sh graphtools/explorer/vendor/refresh.sh            the versions that are here
#   sh graphtools/explorer/vendor/refresh.sh 3.2.0 4.1.0 others: dagre, then graphlib
# New versions change SHA256SUMS; run tests/graphtools/explorer afterwards.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dagre=${1:-3.1.3}
graphlib=${2:-4.0.6}  # what that dagre depends on; it is part of dagre.min.js
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for package in "dagre@$dagre" "graphlib@$graphlib"; do
  archive=$(npm pack --silent "@dagrejs/$package")
  name=${package%@*}
  mkdir "$name"
  tar xzf "$archive" -C "$name" --strip-components 1
  cp "$name/LICENSE" "$here/$name.LICENSE"
done
cp dagre/dist/dagre.min.js "$here/dagre.min.js"
cd "$here"
if [ $# -gt 0 ]; then
  sha256sum dagre.min.js dagre.LICENSE graphlib.LICENSE > SHA256SUMS
  echo "write the versions $dagre and $graphlib into refresh.sh"
fi
sha256sum --check SHA256SUMS
