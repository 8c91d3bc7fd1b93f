//! Times in buckets: every quantile is exact to three digits, whatever its size.

use std::fmt::Write;
use std::time::Duration;

/// Each power of two has so many buckets. So a bucket is narrower than a thousandth of its times.
const BUCKETS: u64 = 1024;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

/// The bucket of a time: below 2048 ns the time itself.
fn bucket(ns: u64) -> usize {
    let bits = u64::from(u64::BITS - ns.leading_zeros());
    let shift = bits.saturating_sub(11);
    (shift * BUCKETS + (ns >> shift)) as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * BUCKETS {
        return bucket;
    }
    let shift = bucket / BUCKETS - 1;
    ((bucket - shift * BUCKETS) << shift) + (1 << shift) / 2
}

impl Histogram {
    pub fn add(&mut self, ns: u64) {
        self.add_to(bucket(ns), 1);
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
        self.count += 1;
    }

    fn add_to(&mut self, bucket: usize, count: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += count;
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        for (bucket, &count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add_to(bucket, count);
        }
        let least = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.min_ns = least;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
        self.count += other.count;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn min(&self) -> Duration {
        Duration::from_nanos(self.min_ns)
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.sum_ns / u128::from(self.count.max(1))) as u64)
    }

    /// The time that this percentage of all times does not exceed.
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let ns = middle(bucket).clamp(self.min_ns, self.max_ns);
                return Duration::from_nanos(ns);
            }
        }
        self.max()
    }

    /// One line for [`parse`](Histogram::parse).
    pub fn to_line(&self) -> String {
        let mut line = format!("{} {} {}", self.sum_ns, self.min_ns, self.max_ns);
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // Writing to a string does not fail.
            let _ = write!(line, " {bucket}:{count}");
        }
        line
    }

    pub fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Histogram> {
        let mut histogram = Histogram {
            sum_ns: words.next()?.parse().ok()?,
            min_ns: words.next()?.parse().ok()?,
            max_ns: words.next()?.parse().ok()?,
            ..Histogram::default()
        };
        for word in words {
            let (bucket, count) = word.split_once(':')?;
            let (bucket, count): (usize, u64) = (bucket.parse().ok()?, count.parse().ok()?);
            if bucket > self::bucket(u64::MAX) {
                return None;
            }
            histogram.add_to(bucket, count);
            histogram.count += count;
        }
        Some(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of all sizes, in order.
    fn times() -> Vec<u64> {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut times: Vec<u64> = (0..100_000)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random >> (random % 61)
            })
            .collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn quantiles_are_exact_to_three_digits() {
        let times = times();
        let mut histogram = Histogram::default();
        times.iter().for_each(|&time| histogram.add(time));
        for percent in [0.1, 1.0, 10.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0] {
            let rank = (times.len() as f64 * percent / 100.0).ceil() as usize;
            let (exact, found) = (times[rank - 1], histogram.percentile(percent).as_nanos() as u64);
            let error = exact.abs_diff(found) as f64 / exact.max(1) as f64;
            assert!(error <= 0.0005, "{percent}: {found} for {exact}");
        }
        assert_eq!(histogram.min().as_nanos() as u64, times[0]);
        assert_eq!(histogram.max().as_nanos() as u64, *times.last().unwrap());
        let sum: u128 = times.iter().map(|&time| u128::from(time)).sum();
        assert_eq!(histogram.mean().as_nanos(), sum / times.len() as u128);
    }

    #[test]
    fn parts_merge_to_the_whole_also_as_lines() {
        let times = times();
        let (mut whole, mut merged) = (Histogram::default(), Histogram::default());
        times.iter().for_each(|&time| whole.add(time));
        for part in times.chunks(7001) {
            let mut histogram = Histogram::default();
            part.iter().for_each(|&time| histogram.add(time));
            merged.merge(&Histogram::parse(histogram.to_line().split(' ')).unwrap());
        }
        assert_eq!(merged, whole);
        let empty = Histogram::parse(Histogram::default().to_line().split(' ')).unwrap();
        merged.merge(&empty);
        assert_eq!(merged, whole);
        assert_eq!(empty.percentile(50.0), Duration::ZERO);
    }

    #[test]
    fn lines_that_are_no_histogram_are_refused() {
        for line in ["", "1 2", "1 2 x", "1 2 3 4", "1 2 3 4:x", "1 2 3 99999999:1"] {
            assert_eq!(Histogram::parse(line.split(' ')), None, "{line}");
        }
    }
}
