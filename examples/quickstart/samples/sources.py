"""Small files of ten kinds, as text. The file names are examples too: only the content counts."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """A file and what it should be recognized as."""

    label: str
    """Magika's name for the content type."""
    text: str


PYTHON = '''\
"""Prime numbers by the sieve of Eratosthenes."""

from collections.abc import Iterator
from itertools import compress


def primes(limit: int) -> Iterator[int]:
    """Yield the primes below ``limit``, in order."""
    sieve = bytearray([1]) * limit
    sieve[:2] = bytes(min(limit, 2))
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return compress(range(limit), sieve)


if __name__ == "__main__":
    print(*primes(100))
'''

C = """\
#include <stdio.h>
#include <stdlib.h>

struct node {
    int value;
    struct node *next;
};

static struct node *push(struct node *head, int value)
{
    struct node *fresh = malloc(sizeof *fresh);
    if (fresh == NULL) {
        perror("malloc");
        exit(EXIT_FAILURE);
    }
    fresh->value = value;
    fresh->next = head;
    return fresh;
}

int main(void)
{
    struct node *head = NULL;
    for (int i = 0; i < 10; i++)
        head = push(head, i * i);
    for (struct node *n = head; n != NULL; n = n->next)
        printf("%d\\n", n->value);
    return 0;
}
"""

JSON = """\
{
    "_meta": {
        "requires": {"python_version": "3.12"},
        "sources": [
            {"name": "pypi", "url": "https://packages.example/simple", "verify_ssl": true}
        ]
    },
    "default": {
        "numpy": {"index": "pypi", "markers": "python_version >= '3.11'", "version": "==2.2.0"},
        "onnxruntime": {"index": "pypi", "version": "==1.20.1"}
    },
    "develop": {
        "pytest": {"index": "pypi", "version": "==8.3.4"}
    }
}
"""

HTML = """\
<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>Opening hours</title>
    <link rel="stylesheet" href="style.css">
  </head>
  <body>
    <h1>Opening hours</h1>
    <table>
      <tr><th>Day</th><th>Hours</th></tr>
      <tr><td>Monday to Friday</td><td>8:00 to 18:00</td></tr>
      <tr><td>Saturday</td><td>9:00 to 14:00</td></tr>
    </table>
    <p>Closed on <em>public holidays</em>. <a href="/contact">Write to us</a>.</p>
  </body>
</html>
"""

MARKDOWN = """\
# Sourdough for beginners

A loaf takes two days, most of them waiting.

## What you need

- 400 g of strong flour
- 280 g of water
- 80 g of *active* starter
- 8 g of salt

## How it goes

1. Mix flour and water, and leave them for an **hour**.
2. Add starter and salt; fold every 30 minutes, four times.
3. Shape, and put it in the fridge overnight.
4. Bake at 240 °C: 20 minutes with the lid on, 20 without.

> The starter is ready when a spoonful of it floats.

See [the second loaf](second-loaf.md) for rye.
"""

SHELL = """\
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
"""

SQL = """\
CREATE TABLE customer (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    city TEXT
);

CREATE TABLE purchase (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customer (id),
    cents INTEGER NOT NULL CHECK (cents > 0),
    placed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);

INSERT INTO customer (id, name, city) VALUES (1, 'Ada', 'London'), (2, 'Grace', 'New York');

SELECT customer.city, COUNT(*) AS purchases, SUM(purchase.cents) / 100.0 AS total
FROM purchase
JOIN customer ON customer.id = purchase.customer_id
WHERE purchase.placed_at >= '2024-01-01'
GROUP BY customer.city
ORDER BY total DESC;
"""

YAML = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: greeter
  labels:
    app: greeter
spec:
  replicas: 3
  selector:
    matchLabels:
      app: greeter
  template:
    metadata:
      labels:
        app: greeter
    spec:
      containers:
        - name: greeter
          image: example.org/greeter:1.4
          ports:
            - containerPort: 8080
          resources:
            limits:
              memory: 128Mi
"""

RUST = """\
use std::collections::HashMap;
use std::io::{self, BufRead};

fn count_words(reader: impl BufRead) -> io::Result<HashMap<String, usize>> {
    let mut counts = HashMap::new();
    for line in reader.lines() {
        for word in line?.split_whitespace() {
            *counts.entry(word.to_lowercase()).or_insert(0) += 1;
        }
    }
    Ok(counts)
}

fn main() -> io::Result<()> {
    let mut counts: Vec<_> = count_words(io::stdin().lock())?.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    for (word, count) in counts.iter().take(10) {
        println!("{count:>6} {word}");
    }
    Ok(())
}
"""

JAVASCRIPT = """\
import { readFile } from "node:fs/promises";

const DAY_MS = 24 * 60 * 60 * 1000;

export async function upcoming(path, now = new Date()) {
  const events = JSON.parse(await readFile(path, "utf8"));
  return events
    .map((event) => ({ ...event, date: new Date(event.date) }))
    .filter(({ date }) => date >= now && date - now < 7 * DAY_MS)
    .sort((a, b) => a.date - b.date);
}

const [, , path = "events.json"] = process.argv;
for (const { date, title } of await upcoming(path)) {
  console.log(`${date.toISOString().slice(0, 10)}  ${title}`);
}
"""

SOURCES = {
    "primes.py": Source("python", PYTHON),
    "stack.c": Source("c", C),
    # JSON under another name: the client reads a .json input as a ready-made request body.
    "Pipfile.lock": Source("json", JSON),
    "hours.html": Source("html", HTML),
    "bread.md": Source("markdown", MARKDOWN),
    "backup.sh": Source("shell", SHELL),
    "shop.sql": Source("sql", SQL),
    "greeter.yaml": Source("yaml", YAML),
    "words.rs": Source("rust", RUST),
    "upcoming.js": Source("javascript", JAVASCRIPT),
}
