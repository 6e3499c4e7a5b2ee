#!/usr/bin/env bash
# Keep seven daily copies of a folder.
set -euo pipefail

source_dir=${1:?usage: backup.sh SOURCE TARGET}
target_dir=${2:?usage: backup.sh SOURCE TARGET}
today=$(date +%F)

mkdir -p "$target_dir"
tar --create --gzip --file "$target_dir/$today.tar.gz" --directory "$source_dir" .

find "$target_dir" -name '*.tar.gz' -mtime +7 -print0 |
    while IFS= read -r -d '' old; do
        echo "removing $old"
        rm -- "$old"
    done
