//! Playback of a script: waits until each piece is due, sends it in as few writes as the pace allows, and detects a
//! client that disconnects.

use super::control::{PlaybackOutcome, SimulatorControl};
use super::response_writer::ResponseWriter;
use super::script::{HeadAction, ResponseScript};
use super::token_pacing::TokenPacing;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Number of queued bytes at which they are written to the connection.
const WRITE: usize = 64 << 10;
/// Pause after a piece that must be sent in its own packet.
const ALONE: Duration = Duration::from_micros(200);

/// Reason for which a playback ends early.
enum PlaybackStop {
    Gone,
    Cut,
}

impl From<io::Error> for PlaybackStop {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Plays a script and returns its outcome.
pub(super) async fn play<L: ResponseWriter>(
    script: ResponseScript,
    line: &mut L,
    pace: TokenPacing,
    control: &SimulatorControl,
) -> PlaybackOutcome {
    match perform(script, line, pace, control).await {
        Ok(()) => PlaybackOutcome::Finished,
        Err(PlaybackStop::Gone) => PlaybackOutcome::ClientGone,
        Err(PlaybackStop::Cut) => {
            line.abort().await;
            PlaybackOutcome::Cut
        }
    }
}

async fn perform<L: ResponseWriter>(
    script: ResponseScript,
    line: &mut L,
    pace: TokenPacing,
    control: &SimulatorControl,
) -> Result<(), PlaybackStop> {
    let begin = Instant::now();
    let pace = pace.delayed(script.first_token_delay);
    match script.before {
        HeadAction::Nothing => {}
        HeadAction::Cut => return Err(PlaybackStop::Cut),
        HeadAction::Hold => wait_or_disconnect(line, control.wait_for_release()).await?,
    }
    let mut now = begin;
    let first = script.pieces.first().map_or(begin, |piece| begin + pace.due_at(piece.tokens));
    if !script.head_at_once && first > now {
        wait_or_disconnect(line, sleep_until(first)).await?;
        now = Instant::now();
    }
    line.queue_head(&script.head);
    if let Some(pause) = script.head_byte_delay {
        line.flush_slowly(pause).await?;
    }
    for piece in &script.pieces {
        if piece.hold {
            line.flush().await?;
            wait_or_disconnect(line, control.wait_for_release()).await?;
            now = Instant::now();
        }
        let due = begin + pace.due_at(piece.tokens);
        if due > now {
            // The clock is read only if the piece was not due at the last reading.
            now = Instant::now();
            if due > now {
                line.flush().await?;
                wait_or_disconnect(line, sleep_until(due)).await?;
                now = Instant::now();
            }
        }
        line.queue_bytes(&piece.bytes);
        if piece.alone {
            line.flush().await?;
            wait_or_disconnect(line, sleep(ALONE)).await?;
        } else if line.queued() >= WRITE {
            line.flush().await?;
        }
    }
    if script.cut {
        line.flush().await?;
        return Err(PlaybackStop::Cut);
    }
    Ok(line.end().await?)
}

/// Waits, unless the client disconnects first.
async fn wait_or_disconnect<L: ResponseWriter>(
    line: &mut L,
    wait: impl Future<Output = ()>,
) -> Result<(), PlaybackStop> {
    tokio::select! {
        biased;
        () = wait => Ok(()),
        () = line.wait_for_disconnect() => Err(PlaybackStop::Gone),
    }
}
