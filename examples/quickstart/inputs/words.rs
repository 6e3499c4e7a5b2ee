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
