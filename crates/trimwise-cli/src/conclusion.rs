//! A conclusion as text: its sentences, the commands that carry it out, and those that undo it.

use trimwise_study::conclusion::Conclusion;
use trimwise_study::conclusion::steps::Steps;

use crate::table::{bold, folded, plain};

/// Renders a conclusion, its first line in bold.
pub fn text(conclusion: &Conclusion) -> String {
    head(conclusion) + &steps(&conclusion.steps)
}

/// Renders the sentences.
pub fn head(conclusion: &Conclusion) -> String {
    let mut lines = conclusion.head.iter();
    let first = lines.next().map_or_else(String::new, |line| folded(&plain(line), 0));
    let rest: String = lines.map(|line| folded(&plain(line), 0)).collect();
    format!("{}\n{rest}", bold(first.trim_end()))
}

/// Renders the commands unfolded, so that they can be copied.
pub fn steps(steps: &Steps) -> String {
    let mut text = String::new();
    for (heading, commands) in [("As root:", &steps.commands), ("To undo it:", &steps.undo)] {
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
