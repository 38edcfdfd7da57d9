//! Panels as SVG. A file has its own ground, light or dark as the reader's system is, so it can be read on any page.

use std::fmt::Write as _;

use crate::panel::{Panel, Scale, Series};

/// Lengths in pixels.
const WIDTH: f64 = 800.0;
const MARGIN: f64 = 20.0;
const HEIGHT: f64 = 130.0;
/// From a panel's title to its curves.
const HEAD: f64 = 44.0;
/// Below the curves, for the ends of the time.
const FOOT: f64 = 34.0;

const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#24292f}\
.ground{fill:#fff}.title{font-size:14px;font-weight:600}.muted{fill:#656d76}.end{text-anchor:end}\
.grid{stroke:#d8dee4}.line{fill:none;stroke-width:1.5;stroke-linejoin:round}\
.c0{stroke:#0969da}.c1{stroke:#bc4c00}.c2{stroke:#0f8a5f}.c3{stroke:#8250df}\
.f0{fill:#0969da}.f1{fill:#bc4c00}.f2{fill:#0f8a5f}.f3{fill:#8250df}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117}.muted{fill:#8b949e}.grid{stroke:#262c36}\
.c0{stroke:#58a6ff}.c1{stroke:#f0883e}.c2{stroke:#3fb950}.c3{stroke:#bc8cff}\
.f0{fill:#58a6ff}.f1{fill:#f0883e}.f2{fill:#3fb950}.f3{fill:#bc8cff}}";

/// Colors of series.
const COLORS: usize = 4;

/// Text as it stands in SVG.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A drawing of these panels, one below the other, under a title.
#[must_use]
pub fn svg(title: &str, panels: &[Panel]) -> String {
    let mut body = String::new();
    let mut top = MARGIN;
    text(&mut body, "title", MARGIN, top + 12.0, title);
    top += 24.0;
    for panel in panels {
        draw(panel, top, &mut body);
        top += HEAD + HEIGHT + FOOT;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" \
         role=\"img\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{top}\" rx=\"8\"/>\n{body}</svg>\n",
        escaped(title)
    )
}

fn draw(panel: &Panel, top: f64, body: &mut String) {
    let tops = panel.tops();
    text(body, "muted", MARGIN, top + 14.0, &panel.title);
    let mut legend = MARGIN;
    for (at, (series, largest)) in panel.series.iter().zip(&tops).enumerate() {
        let color = at % COLORS;
        let mut words = format!("{} {}", series.name, panel.last(series));
        if panel.scale == Scale::Own {
            let _ = write!(words, ", top {}", (panel.show)(*largest));
        }
        let _ = writeln!(
            body,
            "<rect class=\"f{color}\" x=\"{legend:.0}\" y=\"{:.0}\" width=\"9\" height=\"9\" rx=\"2\"/>",
            top + 24.0
        );
        text(body, "", legend + 13.0, top + 33.0, &words);
        legend += 40.0 + 7.0 * words.chars().count() as f64;
    }
    let (base, edge) = (top + HEAD + HEIGHT, WIDTH - MARGIN);
    for part in [0.0, 0.5, 1.0] {
        let y = base - part * HEIGHT;
        let _ = writeln!(body, "<path class=\"grid\" d=\"M{MARGIN} {y:.1}H{edge}\"/>");
    }
    if let (Scale::Shared, Some(largest)) = (panel.scale, tops.first()) {
        text(body, "muted end", edge, top + HEAD - 4.0, &format!("top {}", (panel.show)(*largest)));
    }
    for (at, (series, largest)) in panel.series.iter().zip(&tops).enumerate() {
        let path = path(series, *largest, base);
        if !path.is_empty() {
            let _ = writeln!(body, "<path class=\"line c{}\" d=\"{path}\"/>", at % COLORS);
        }
    }
    text(body, "muted", MARGIN, base + 16.0, &panel.begin);
    text(body, "muted end", edge, base + 16.0, &panel.end);
}

/// The path of a curve; a gap begins it anew.
fn path(series: &Series, largest: f64, base: f64) -> String {
    let count = series.points.len();
    let step = (WIDTH - 2.0 * MARGIN) / count.saturating_sub(1).max(1) as f64;
    let mut path = String::new();
    let mut is_down = false;
    for (at, point) in series.points.iter().enumerate() {
        let Some(value) = point else {
            is_down = false;
            continue;
        };
        let (x, y) = (MARGIN + at as f64 * step, base - (value / largest).clamp(0.0, 1.0) * HEIGHT);
        let _ = write!(path, "{}{x:.1} {y:.1}", if is_down { 'L' } else { 'M' });
        is_down = true;
    }
    path
}

fn text(body: &mut String, class: &str, x: f64, y: f64, words: &str) {
    let _ = writeln!(body, "<text class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\">{}</text>", escaped(words));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(points: &[Option<f64>]) -> Panel {
        Panel {
            title: "Flow by 10 s".to_owned(),
            begin: "1h ago".to_owned(),
            end: "now".to_owned(),
            scale: Scale::Shared,
            series: vec![Series { name: "put".to_owned(), points: points.to_vec() }],
            show: |value| format!("{value:.0}/s"),
        }
    }

    #[test]
    fn a_gap_breaks_a_curve() {
        let drawing = svg("x", &[panel(&[Some(0.0), Some(10.0), None, Some(5.0), Some(5.0)])]);
        assert!(drawing.contains("d=\"M20.0 218.0L210.0 88.0M590.0 153.0L780.0 153.0\""), "{drawing}");
        assert!(drawing.contains(">put 5/s<") && drawing.contains(">top 10/s<"), "{drawing}");
    }

    #[test]
    fn names_are_text_and_nothing_else() {
        let drawing = svg("<script>\"&", &[]);
        assert!(
            drawing.contains("<title>&lt;script&gt;&quot;&amp;</title>") && !drawing.contains("<script>")
        );
    }
}
