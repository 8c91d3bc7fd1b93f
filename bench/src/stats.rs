//! Medians, and intervals by resampling runs.

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The median of one value per run, with the interval that resampling the runs gives.
pub fn estimate(runs: &[f64]) -> Estimate {
    const SAMPLES: usize = 10_000;
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |below: usize| {
        // Marsaglia's xorshift: the same intervals for the same figures.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut medians: Vec<f64> = (0..SAMPLES)
        .map(|_| median(&(0..runs.len()).map(|_| runs[next(runs.len())]).collect::<Vec<_>>()))
        .collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[(share * (SAMPLES - 1) as f64).round() as usize];
    Estimate { median: median(runs), low: at(0.025), high: at(0.975) }
}

/// A straight line through points: slope with its 95 % interval, start, and R².
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub slope: Estimate,
    pub start: f64,
    pub r2: f64,
}

/// The least-squares line. The interval is Student's, for the number of points.
pub fn fit(points: &[(f64, f64)]) -> Line {
    let n = points.len() as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let syy: f64 = points.iter().map(|p| (p.1 - my).powi(2)).sum();
    let slope = sxy / sxx;
    let start = my - slope * mx;
    let rest: f64 = points.iter().map(|p| (p.1 - start - slope * p.0).powi(2)).sum();
    let half = student(points.len().saturating_sub(2)) * (rest / (n - 2.0) / sxx).sqrt();
    let slope = Estimate { median: slope, low: slope - half, high: slope + half };
    Line { slope, start, r2: 1.0 - rest / syy }
}

/// The 97.5 % point of Student's distribution.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    match freedom {
        0 => f64::INFINITY,
        n if n <= TABLE.len() => TABLE[n - 1],
        _ => 1.96 + 2.5 / freedom as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_its_median_and_narrows_with_agreement() {
        let wide = estimate(&[0.8, 0.9, 1.0, 1.1, 1.2]);
        let narrow = estimate(&[0.99, 1.0, 1.0, 1.0, 1.01]);
        assert!(wide.low < 1.0 && wide.high > 1.0, "{wide:?}");
        assert!(narrow.high - narrow.low < wide.high - wide.low, "{narrow:?}");
        assert_eq!(narrow.median, 1.0);
    }

    #[test]
    fn a_line_is_found() {
        let points: Vec<_> = (1..7).map(|n| (f64::from(n), 3.0 * f64::from(n) + 2.0)).collect();
        let line = fit(&points);
        assert!((line.slope.median - 3.0).abs() < 1e-9 && (line.start - 2.0).abs() < 1e-9);
        assert!((line.r2 - 1.0).abs() < 1e-9);
    }
}
