//! Converts MQSim's `workload.xml` to a fio job.

use std::fmt::Write as _;

use roxmltree::Node;
use trimwise::failure::{Failure, Mistake, Mistakes};
use trimwise::units::SECTOR_BYTES;

use super::foreign::{self, Foreign, Parameter};

/// Converts the text of MQSim's `workload.xml` to a fio job. Its scenarios run one after the other, the flows of each
/// in parallel. Sizes are shares of the drive, as in MQSim. The error lists every mistake with its line.
pub fn job_of(text: &str, file: &str) -> Result<String, Failure> {
    let wrong = |what: String| Mistake::of("import", file).because(what);
    let text = foreign::with_matching_tags(text);
    let document = foreign::parsed(&text, file)?;
    let root = document.root_element();
    if root.tag_name().name() != "MQSim_IO_Scenarios" {
        let root = root.tag_name().name();
        return Err(wrong(format!("XML with the root '{root}'")).expected("MQSim_IO_Scenarios").fail());
    }
    let mut job = format!("; Made by `trimwise workloads --import` of trimwise {}.\n", trimwise::VERSION);
    job += "; Sizes are shares of the drive.\n[global]\ndirect=1\nioengine=libaio\nrandrepeat=0\n";
    let mut problems = Mistakes::default();
    let mut jobs = 0;
    for (scenario, flows) in elements(root).enumerate() {
        for (flow, node) in elements(flows).enumerate() {
            let name = format!("scenario{}-flow{}", scenario + 1, flow + 1);
            let mut from = Foreign::new(file, elements(node).map(Parameter::of).collect());
            let made = match node.tag_name().name() {
                "IO_Flow_Parameter_Set_Synthetic" => {
                    jobs += 1;
                    synthetic(&mut from, &name, scenario > 0 && flow == 0)
                }
                "IO_Flow_Parameter_Set_Trace_Based" => {
                    let path = from.string("File_Path");
                    format!("\n; {name} is a trace: trimwise replay mqsim:{path}\n")
                }
                other => {
                    let line = document.text_pos_at(node.range().start).row;
                    let expected = "IO_Flow_Parameter_Set_Synthetic or IO_Flow_Parameter_Set_Trace_Based";
                    let of = Mistake::that(format!("{other} is not accepted")).at(file, Some(line as usize));
                    problems.0.push(of.expected(expected));
                    String::new()
                }
            };
            if problems.keep(from.finish(&[]))?.is_some() {
                job += &made;
            }
        }
    }
    problems.end()?;
    if jobs == 0 {
        let expected = "one to make a job of. Traces are replayed: trimwise replay mqsim:FILE";
        return Err(wrong("no synthetic flow".to_owned()).expected(expected).fail());
    }
    Ok(job)
}

fn elements<'a, 'b>(node: Node<'a, 'b>) -> impl Iterator<Item = Node<'a, 'b>> {
    node.children().filter(Node::is_element)
}

#[derive(Clone, Copy, PartialEq)]
enum Addresses {
    Streaming,
    Uniform,
    HotCold,
}

fn synthetic(from: &mut Foreign, name: &str, waits: bool) -> String {
    let mut job = format!("\n[{name}]\n");
    let mut line = |text: String| {
        let _ = writeln!(job, "{text}");
    };
    if waits {
        line("stonewall".to_owned());
    }
    let addresses = [
        ("STREAMING", Addresses::Streaming),
        ("RANDOM_UNIFORM", Addresses::Uniform),
        ("RANDOM_HOTCOLD", Addresses::HotCold),
    ];
    let addresses = from.word("Address_Distribution", &addresses);
    let reads = from.number("Read_Percentage", 0..=100_u64);
    let kind = match reads {
        0 => "write",
        100 => "read",
        _ => "rw",
    };
    line(format!("rw={}{kind}", if addresses == Addresses::Streaming { "" } else { "rand" }));
    if kind == "rw" {
        line(format!("rwmixread={reads}"));
    }
    if addresses != Addresses::Streaming {
        // MQSim draws each address anew.
        line("norandommap".to_owned());
    }
    if addresses == Addresses::HotCold {
        let hot = from.number("Percentage_of_Hot_Region", 1..=99_u64);
        line(format!("random_distribution=zoned:{}/{hot}:{hot}/{}", 100 - hot, 100 - hot));
    }
    let sectors = from.number("Average_Request_Size", 1..=1_u64 << 20);
    line(format!("bs={}", sectors * SECTOR_BYTES));
    let spread = from.number_if("Variance_Request_Size", 0..=1_u64 << 40).unwrap_or(0);
    if !from.word("Request_Size_Distribution", &[("FIXED", true), ("NORMAL", false)]) && spread > 0 {
        line(format!(
            "; MQSim's sizes are normally distributed (variance {spread} sectors); here all are the mean"
        ));
    }
    let aligned = from.word("Generated_Aligned_Addresses", &[("true", true), ("false", false)]);
    let unit = from.number_if("Address_Alignment_Unit", 1..=1_u64 << 20).unwrap_or(1);
    if aligned && addresses != Addresses::Streaming {
        line(format!("blockalign={}", unit * SECTOR_BYTES));
    }
    line(format!("size={}%", from.number("Working_Set_Percentage", 1..=100_u64)));
    if from.word("Synthetic_Generator_Type", &[("QUEUE_DEPTH", true), ("BANDWIDTH", false)]) {
        line(format!("iodepth={}", from.number("Average_No_of_Reqs_in_Queue", 1..=65_536_u64)));
    } else {
        let bandwidth = if from.has("Bandwidth") { "Bandwidth" } else { "Intensity" };
        line(format!("rate={}\nrate_process=poisson", from.number(bandwidth, 1..=1_u64 << 40)));
    }
    match from.number("Stop_Time", 0..=u64::MAX) {
        0 => {
            let requests = from.number("Total_Requests_To_Generate", 1..=1_u64 << 40);
            line(format!("number_ios={requests}"));
        }
        ns => line(format!("time_based\nruntime={}us", ns.div_ceil(1000))),
    }
    job
}
