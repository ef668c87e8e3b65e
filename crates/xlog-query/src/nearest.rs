//! What somebody most likely meant.

/// The known word that `word` differs least from, if that is little.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = word.chars().count().div_ceil(3).max(1);
    known
        .into_iter()
        .map(|other| (distance(word, other), other))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// How many letters differ, upper and lower case being the same.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, a) in left.to_lowercase().chars().enumerate() {
        let mut corner = row[0];
        row[0] = index + 1;
        for (place, b) in right.iter().enumerate() {
            let changed = corner + usize::from(a != *b);
            corner = row[place + 1];
            row[place + 1] = changed.min(corner + 1).min(row[place] + 1);
        }
    }
    row[right.len()]
}
