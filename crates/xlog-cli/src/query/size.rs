//! Amounts of memory as people write them.

use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a size is written 4GiB, 512MB, or as a number of bytes".to_owned();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim().to_ascii_lowercase());
        let scale: u64 = match unit.as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        let bytes = match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(scale),
            Err(_) => {
                let real: f64 = number.parse().map_err(|_| wrong())?;
                let bytes = real * scale as f64;
                (bytes < u64::MAX as f64).then_some(bytes as u64)
            }
        };
        bytes.map(Self).ok_or_else(|| format!("{text} is more than there can be"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(read("4GiB"), Ok(4 << 30));
        assert_eq!(read("4g"), Ok(4 << 30));
        assert_eq!(read("512 MB"), Ok(512_000_000));
        assert_eq!(read("1.5KiB"), Ok(1536));
        assert_eq!(read("123"), Ok(123));
        for wrong in ["", "GiB", "4XB", "-1", "1.2.3g", "99999999999999999999", "9999999999TiB"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
