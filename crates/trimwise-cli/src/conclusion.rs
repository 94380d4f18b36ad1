//! A conclusion as text: its head, the commands of a change, and what takes it back.

use trimwise_study::conclusion::Conclusion;
use trimwise_study::conclusion::steps::Steps;

use crate::table::{bold, folded, plain};

/// Renders it; the first line stands out.
pub fn text(conclusion: &Conclusion) -> String {
    head(conclusion) + &steps(&conclusion.steps)
}

/// Renders its head.
pub fn head(conclusion: &Conclusion) -> String {
    let mut lines = conclusion.head.iter();
    let first = lines.next().map_or_else(String::new, |line| folded(&plain(line), 0));
    let rest: String = lines.map(|line| folded(&plain(line), 0)).collect();
    format!("{}\n{rest}", bold(first.trim_end()))
}

/// Renders the commands, whole, to be copied.
pub fn steps(steps: &Steps) -> String {
    let mut text = String::new();
    for (heading, commands) in [("As root:", &steps.commands), ("To take it back:", &steps.undo)] {
        if !commands.is_empty() {
            text += &format!("\n{heading}\n");
            commands.iter().for_each(|command| text += &format!("    {command}\n"));
        }
        if heading == "As root:" {
            steps.by_hand.iter().for_each(|by_hand| text += &folded(&plain(by_hand), 0));
        }
    }
    text
}
