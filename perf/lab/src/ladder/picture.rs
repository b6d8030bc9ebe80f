//! Draws the ladder as SVG: each rung's speed relative to rung 0, beside the server that corelane
//! replaces.

use std::path::Path;

use plotters::prelude::*;

use super::{Ladder, LadderReport, RUNGS};

/// Tokens per second from the old server's own benchmark, at its stage nearest to each rung. `None`
/// where it has no such stage. The last figure is the middle of a range from 47 to 55.
pub const OLD_SYSTEM: [Option<f64>; 11] = [
    Some(120.195),
    Some(107.758),
    Some(105.179),
    Some(80.84),
    Some(111.573),
    Some(105.183),
    Some(105.183),
    Some(103.515),
    None,
    None,
    Some(51.0),
];

const OURS: RGBColor = RGBColor(0x1b, 0x6c, 0xa8);
const THEIRS: RGBColor = RGBColor(0xc0, 0x6c, 0x2b);

/// Writes the picture as SVG.
pub fn write(path: &Path, ladder: &Ladder, report: &LadderReport) -> Result<(), String> {
    let base = ladder.rungs.iter().position(|rung| *rung == 0);
    let base = base.ok_or("--svg needs rung 0, which the others are compared with")?;
    draw(path, ladder, report, base)
        .map_err(|error| format!("cannot draw {}: {error}", path.display()))
}

fn draw(
    path: &Path,
    ladder: &Ladder,
    report: &LadderReport,
    base: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (1000, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!(
        "Of rung 0's tokens a second ({} x {} x {} x {})",
        ladder.requests, ladder.concurrency, ladder.prompt_tokens, ladder.gen_tokens
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5f64..10.5, 0.0f64..1.25)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(12)
        .x_label_formatter(&|x| rung_label(*x))
        .y_label_formatter(&|y| format!("{:.0} %", y * 100.0))
        .label_style(("sans-serif", 14))
        .draw()?;
    let ours: Vec<(f64, f64, f64)> = (0..ladder.rungs.len())
        .map(|i| (ladder.rungs[i] as f64, report.ratio(i, base).median, report.rate(i).median))
        .collect();
    let first = OLD_SYSTEM[0].unwrap_or(1.0);
    let rungs = OLD_SYSTEM.iter().enumerate();
    let theirs: Vec<(f64, f64, f64)> =
        rungs.filter_map(|(i, rate)| rate.map(|rate| (i as f64, rate / first, rate))).collect();
    for (points, colour, name, offset) in [
        (&ours, OURS, format!("corelane, {}", report.model), -26),
        (
            &theirs,
            THEIRS,
            "the old server, qwen3-0.6b on an Apple M3 (rungs 4 to 7: 20 x 4 x 30)".to_owned(),
            14,
        ),
    ] {
        let line = points.iter().map(|(x, y, _)| (*x, *y));
        chart
            .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        chart.draw_series(line.map(|point| Circle::new(point, 4, colour.filled())))?;
        chart.draw_series(points.iter().map(|(x, y, rate)| {
            EmptyElement::at((*x, *y))
                + Text::new(
                    format!("{rate:.0}"),
                    (-12, offset),
                    ("sans-serif", 13).into_font().color(&colour),
                )
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.9))
        .label_font(("sans-serif", 14))
        .draw()?;
    root.present()?;
    Ok(())
}

fn rung_label(x: f64) -> String {
    let rung = x.round();
    if (x - rung).abs() > 0.01 || !(0.0..RUNGS.len() as f64).contains(&rung) {
        return String::new();
    }
    format!("{rung} {}", RUNGS[rung as usize].name)
}
