#!/bin/sh
# Builds the web page from its sources into src/page. The same sources give the same bytes.
set -eu
export LC_ALL=C
cd "$(dirname "$0")"
out=../../src/page

test -n "${SKIP_INSTALL:-}" || npm ci --silent --ignore-scripts
node_modules/.bin/tsc --noEmit

# The first line of app.js names the sources, so that a test can tell without node whether it is current.
hash=$(cat app.css icon.svg index.html src/*.ts | sha256sum | cut -d ' ' -f 1)
mkdir -p "$out"
cp index.html icon.svg "$out"/
node_modules/.bin/esbuild app.css --minify --charset=utf8 --log-level=warning --outfile="$out/app.css"
node_modules/.bin/esbuild src/main.ts --bundle --minify --format=esm --target=es2022 --charset=utf8 \
  --legal-comments=none --log-level=warning --outfile="$out/app.js" \
  --banner:js="// Built by tools/page/build.sh from sources with SHA-256 $hash"

for file in index.html app.js app.css icon.svg; do
  echo "$file: $(wc -c < "$out/$file") bytes, $(gzip -9c "$out/$file" | wc -c) compressed"
done
