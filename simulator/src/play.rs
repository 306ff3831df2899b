//! Playback of a script: waits until each piece is due, sends it in as few writes as the pace allows, and detects a
//! client that disconnects.

use super::control::{Control, Outcome};
use super::line::Line;
use super::pace::Pace;
use super::script::{Before, Script};
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Number of queued bytes that causes a write.
const WRITE: usize = 64 << 10;
/// Pause after a piece that is sent alone, long enough for a packet of its own.
const ALONE: Duration = Duration::from_micros(200);

/// Reason for which a playback ends early.
enum Stop {
    Gone,
    Cut,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Plays a script and returns its outcome.
pub(super) async fn play<L: Line>(script: Script, line: &mut L, pace: Pace, control: &Control) -> Outcome {
    match perform(script, line, pace, control).await {
        Ok(()) => Outcome::Finished,
        Err(Stop::Gone) => Outcome::Gone,
        Err(Stop::Cut) => {
            line.cut().await;
            Outcome::Cut
        }
    }
}

async fn perform<L: Line>(script: Script, line: &mut L, pace: Pace, control: &Control) -> Result<(), Stop> {
    let begin = Instant::now();
    let pace = pace.later(script.later);
    match script.before {
        Before::Nothing => {}
        Before::Cut => return Err(Stop::Cut),
        Before::Hold => stay(line, control.held()).await?,
    }
    let mut now = begin;
    let first = script.pieces.first().map_or(begin, |piece| begin + pace.due(piece.tokens));
    if !script.early && first > now {
        stay(line, sleep_until(first)).await?;
        now = Instant::now();
    }
    line.head(&script.head);
    if let Some(pause) = script.drip {
        line.drip(pause).await?;
    }
    for piece in &script.pieces {
        if piece.hold {
            line.flush().await?;
            stay(line, control.held()).await?;
            now = Instant::now();
        }
        let due = begin + pace.due(piece.tokens);
        if due > now {
            // The clock is read only if the last reading is too old.
            now = Instant::now();
            if due > now {
                line.flush().await?;
                stay(line, sleep_until(due)).await?;
                now = Instant::now();
            }
        }
        line.put(&piece.bytes);
        if piece.alone {
            line.flush().await?;
            stay(line, sleep(ALONE)).await?;
        } else if line.queued() >= WRITE {
            line.flush().await?;
        }
    }
    if script.cut {
        line.flush().await?;
        return Err(Stop::Cut);
    }
    Ok(line.end().await?)
}

/// Waits, unless the client disconnects first.
async fn stay<L: Line>(line: &mut L, wait: impl Future<Output = ()>) -> Result<(), Stop> {
    tokio::select! {
        biased;
        () = wait => Ok(()),
        () = line.gone() => Err(Stop::Gone),
    }
}
