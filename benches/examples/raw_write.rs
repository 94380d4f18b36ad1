//! The two tests that `scripts/bench-against-fio.sh` compares with fio, without anything around them.
//!
//! `raw_write file:PATH seq QD MIB` or `raw_write file:PATH rand QD SECONDS`; prints bytes a second. What the file or
//! device holds is overwritten. `raw_write fill` prints how fast the bytes of each class of data are made.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use trimwise::block::{BlockDevice, BlockError, Operation};
use trimwise::content::{Content, ContentClass};
use trimwise::units::{Lpn, SimDuration, UNIT_BYTES, UnitRange};
use trimwise_linux::consent;
use trimwise_linux::raw_device::{Access, Options, RawDevice, Target};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["fill"] => fill(),
        [target, test @ ("seq" | "rand"), depth, amount] => {
            let target: Target = target.parse()?;
            let path = target.path().display().to_string();
            let consent = consent::check(&target, Some(&path))?;
            let device = RawDevice::open(Access::Write(consent), &Options::default())?;
            for note in device.notes() {
                eprintln!("{note}");
            }
            let (depth, amount) = (depth.parse()?, amount.parse()?);
            let rate = trimwise_linux::block_on(async {
                match test {
                    "seq" => sequential(&device, depth, amount).await,
                    _ => random(&device, depth, amount).await,
                }
            });
            println!("{}", rate??);
        }
        _ => return Err("expected TARGET seq QD MIB, TARGET rand QD SECONDS, or fill".into()),
    }
    Ok(())
}

/// Keeps `depth` writes on their way until there is no next one; answers bytes a second.
async fn keep_full(
    device: &RawDevice,
    depth: u64,
    mut next: impl FnMut(u64) -> Option<UnitRange>,
) -> Result<u64, BlockError> {
    let begun = device.now();
    let (mut started, mut on_their_way, mut bytes) = (0, 0, 0u64);
    loop {
        while on_their_way < depth
            && let Some(range) = next(started)
        {
            let content = Content::new(ContentClass::Incompressible, started as u32);
            device.submit(Operation::write(range, content), started)?;
            bytes += range.units * UNIT_BYTES;
            (started, on_their_way) = (started + 1, on_their_way + 1);
        }
        if on_their_way == 0 {
            let span = device.now().since(begun).as_nanos().max(1);
            return Ok((u128::from(bytes) * 1_000_000_000 / u128::from(span)) as u64);
        }
        device.completion().await?;
        on_their_way -= 1;
    }
}

async fn sequential(device: &RawDevice, depth: u64, mib: u64) -> Result<u64, BlockError> {
    const UNITS: u64 = 256;
    let places = device.size_units() / UNITS;
    keep_full(device, depth, |n| (n < mib).then(|| UnitRange::new(Lpn(n % places * UNITS), UNITS))).await
}

async fn random(device: &RawDevice, depth: u64, seconds: u64) -> Result<u64, BlockError> {
    let until = device.now() + SimDuration::from_secs(seconds);
    let mut state = 1u64;
    keep_full(device, depth, move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (device.now() < until).then(|| UnitRange::new(Lpn((state >> 16) % device.size_units()), 1))
    })
    .await
}

fn fill() {
    const UNITS: u64 = 200_000;
    for class in ContentClass::ALL {
        let mut unit = vec![0; UNIT_BYTES as usize];
        let begun = Instant::now();
        for lpn in 0..UNITS {
            Content::new(class, 1).fill(Lpn(lpn), &mut unit);
            black_box(&unit);
        }
        let each = begun.elapsed().as_nanos() / u128::from(UNITS);
        println!("{class}: {each} ns a unit, {:.1} GB/s", UNIT_BYTES as f64 / each as f64);
    }
}
