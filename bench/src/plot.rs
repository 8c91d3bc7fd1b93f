//! Bars with their intervals, as SVG.

use std::io;

use plotters::prelude::*;

use crate::stats::Estimate;
use crate::table;

/// Bars of one question.
pub struct Panel {
    pub title: String,
    pub logarithmic: bool,
    /// Digits behind the point of a figure.
    pub decimals: usize,
    pub bars: Vec<(String, Estimate)>,
}

const WIDTH: u32 = 880;
const ROW: u32 = 26;
const HEAD: u32 = 44;
/// The room for the legend below the panels.
const FOOT: u32 = 30;
const LEGEND: &str =
    "A bar is a median. The line through its end is its 95 % interval, resampled by run.";
/// Where the bars start, and the room for figures behind the longest.
const LEFT: i32 = 210;
const RIGHT: i32 = 150;

const OURS: RGBColor = RGBColor(0x1f, 0x6f, 0xb2);
const OTHERS: RGBColor = RGBColor(0xa9, 0xb4, 0xc0);

/// Draws the panels one below the other into `results/NAME.svg`.
pub fn panels(name: &str, panels: &[Panel]) -> io::Result<()> {
    let rows = panels.iter().map(|panel| HEAD + ROW * panel.bars.len() as u32 + 16);
    let height: u32 = rows.sum::<u32>() + FOOT;
    let path = table::directory()?.join(format!("{name}.svg"));
    let area = SVGBackend::new(&path, (WIDTH, height)).into_drawing_area();
    draw(&area, panels).map_err(|error| io::Error::other(error.to_string()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, panels: &[Panel]) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let (head, text) = (("sans-serif", 16).into_font(), ("sans-serif", 13).into_font());
    let mut top = 0;
    for panel in panels {
        let bars = || panel.bars.iter().map(|(_, value)| value);
        let most = bars().map(|value| value.high).fold(f64::MIN_POSITIVE, f64::max);
        // A bar below 1 has no length on a logarithmic axis.
        let least = bars().map(|value| value.low).filter(|low| *low >= 1.0);
        let least = least.fold(most, f64::min);
        let room = f64::from(WIDTH as i32 - LEFT - RIGHT);
        let at = |value: f64| {
            let share = if panel.logarithmic {
                let floor = (least / 2.0).ln();
                ((value.max(1e-9).ln() - floor) / (most.ln() - floor)).max(0.0)
            } else {
                value / most
            };
            LEFT + (share * room) as i32
        };
        area.draw(&Text::new(panel.title.clone(), (12, top + 14), head.clone()))?;
        for (index, (name, value)) in panel.bars.iter().enumerate() {
            let y = top + HEAD as i32 + (index as u32 * ROW) as i32;
            let ours = name.starts_with("windlass") || panel.title.starts_with("windlass");
            let colour = if ours { OURS } else { OTHERS };
            area.draw(&Text::new(name.clone(), (12, y + 3), text.clone()))?;
            let bar = [(LEFT, y), (at(value.median), y + ROW as i32 - 8)];
            area.draw(&Rectangle::new(bar, colour.filled()))?;
            if value.high > value.low {
                let middle = y + ROW as i32 / 2 - 4;
                let whisker = vec![(at(value.low), middle), (at(value.high), middle)];
                area.draw(&PathElement::new(whisker, BLACK))?;
            }
            let figure = format!("{:.*}", panel.decimals, value.median);
            let behind = (at(value.high.max(value.median)) + 8, y + 3);
            area.draw(&Text::new(figure, behind, text.clone()))?;
        }
        top += (HEAD + ROW * panel.bars.len() as u32 + 16) as i32;
    }
    area.draw(&Text::new(LEGEND, (12, top + 8), text))?;
    area.present()?;
    Ok(())
}
