#!/bin/sh
# docs.sh SOURCE LIBRARY CC: the code in the README files is real: the C compiles, the Python runs.
set -eu
source=$1
library=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/d;p;}" "$2"; }

block c "$source/README.md" >"$work/readme.c"
[ -s "$work/readme.c" ] || { echo "no C in README.md"; exit 1; }
"$3" -std=c99 -pedantic -Wall -Wextra -Werror -I "$source/include" -fsyntax-only "$work/readme.c"

block python "$source/bindings/c/README.md" >"$work/readme.py"
[ -s "$work/readme.py" ] || { echo "no Python in bindings/c/README.md"; exit 1; }
if command -v python3 >/dev/null; then
  LD_LIBRARY_PATH=$(dirname "$library") python3 "$work/readme.py"
fi

# Relative links lead somewhere.
failed=0
for page in README.md CONTRIBUTING.md bindings/c/README.md; do
  for link in $(grep -o '](\([^)]*\))' "$source/$page" | sed 's/](\(.*\))/\1/; s/#.*//'); do
    case $link in http* | '') continue ;; esac
    [ -e "$source/$(dirname "$page")/$link" ] || { echo "$page links to $link, which is not there"; failed=1; }
  done
done
exit $failed
