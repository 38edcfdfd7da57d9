//! A lane: the area below one curve, in blocks of an eighth of a line.

/// Blocks from an eighth of a line to a whole one.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Stands on the lowest line where a value is zero.
const ZERO: char = '·';
const GAP: char = ' ';

/// The lines of a lane, the upper one first.
pub type Lane = Vec<String>;

/// Points as `columns` values. Several points of a column become their mean; a point of several columns is repeated.
#[must_use]
pub fn fit(points: &[Option<f64>], columns: usize) -> Vec<Option<f64>> {
    let count = points.len();
    if count == 0 {
        return vec![None; columns];
    }
    let place = |column: usize| column * count / columns;
    (0..columns)
        .map(|column| {
            let (first, end) = (place(column), place(column + 1));
            let known: Vec<f64> = points[first..end.max(first + 1)].iter().flatten().copied().collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        })
        .collect()
}

/// Draws points as a lane of `columns` and `lines`, in which `top` reaches the upper edge. Larger values are cut there.
#[must_use]
pub fn lane(points: &[Option<f64>], columns: usize, lines: usize, top: f64) -> Lane {
    let eighths = 8 * lines;
    let heights: Vec<Option<usize>> = fit(points, columns)
        .into_iter()
        .map(|value| {
            let value = value?;
            if value <= 0.0 {
                return Some(0);
            }
            let height = (value / top * eighths as f64).round();
            Some((height as usize).clamp(1, eighths))
        })
        .collect();
    (0..lines)
        .rev()
        .map(|line| {
            let cell = |height: &Option<usize>| match height {
                None => GAP,
                Some(0) if line == 0 => ZERO,
                Some(height) => match height.saturating_sub(8 * line) {
                    0 => GAP,
                    eighths => BLOCKS[eighths.min(8) - 1],
                },
            };
            heights.iter().map(cell).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn points_fill_the_columns() {
        let points = known(&[1.0, 3.0, 5.0, 7.0]);
        assert_eq!(fit(&points, 2), known(&[2.0, 6.0]));
        assert_eq!(fit(&points, 8), known(&[1.0, 1.0, 3.0, 3.0, 5.0, 5.0, 7.0, 7.0]));
        assert_eq!(fit(&[], 3), [None, None, None]);
        assert_eq!(fit(&[None, Some(4.0)], 1), [Some(4.0)]);
        assert_eq!(fit(&[None, None, Some(4.0)], 3), [None, None, Some(4.0)]);
    }

    #[test]
    fn a_lane_has_its_lines_and_columns() {
        let points = [None, Some(0.0), Some(0.001), Some(4.0), Some(8.0), Some(16.0), Some(99.0)];
        assert_eq!(lane(&points, 7, 2, 16.0), ["     ██", " ·▁▄███"]);
        assert_eq!(lane(&points, 7, 1, 16.0), [" ·▁▂▄██"]);
    }
}
