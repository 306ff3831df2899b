//! Request formats of image providers. All are asked for inline images, so that as few as possible have to be fetched.

use super::read;
use crate::measured::together;
use bytes::Bytes;
use penstock_contract::{
    Abilities, Answer, Ask, Call, Done, Draw, Extra, Fault, FaultKind, Finish, Kind, Noticed, Refusal, Shape,
    Size, Target, Task, Whole,
};
use penstock_wire::json;

/// Every provider shape; the first is the default.
pub const SHAPES: &[&dyn Shape] = &[
    &Drawn { name: "openai-images", path: "/images/generations", voice: Voice::Size('x', true) },
    &Drawn { name: "openai-images-bare", path: "/images/generations", voice: Voice::Size('x', false) },
    &Drawn { name: "openai-images-star", path: "/images/generations", voice: Voice::Size('*', true) },
    &Drawn { name: "width-height", path: "/images/generations", voice: Voice::Sides },
    &Drawn { name: "automatic1111", path: "/sdapi/v1/txt2img", voice: Voice::Batch },
];

/// Provider that generates images.
struct Drawn {
    name: &'static str,
    path: &'static str,
    voice: Voice,
}

/// Request members that a provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    /// `n`, `size` with this separator between the sides; true if it takes `response_format`.
    Size(char, bool),
    /// `n`, `width`, `height`, `response_format`.
    Sides,
    /// `batch_size`, `width`, `height`; the model is the loaded one.
    Batch,
}

impl Shape for Drawn {
    fn kind(&self) -> Kind {
        Kind::Image
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn path(&self) -> &'static str {
        self.path
    }

    fn calls(&self, ask: &Ask, target: &Target<'_>) -> Result<Vec<Call>, Refusal> {
        let task =
            task(ask).ok_or_else(|| Refusal::unsupported("model", "model: it does not generate images."))?;
        let most = target.abilities.max_images.unwrap_or(u32::MAX).max(1);
        let mut left = task.n.max(1);
        let mut calls = Vec::new();
        while left > 0 {
            let n = left.min(most);
            calls.push(self.call(task, ask.steps(), target, n));
            left -= n;
        }
        Ok(calls)
    }

    fn whole(&self, ask: &Ask, _: &Target<'_>, answers: Vec<Answer>) -> Result<Whole, Fault> {
        let task = task(ask).ok_or_else(|| Fault::new(FaultKind::Malformed))?;
        let mut pictures = Vec::new();
        for answer in &answers {
            pictures.extend(read::pictures(&answer.body)?);
        }
        // Engines round up to full batches; images that were not requested are not charged.
        pictures.truncate(usize::try_from(task.n).unwrap_or(usize::MAX));
        let count = u32::try_from(pictures.len()).unwrap_or(u32::MAX);
        Ok(Whole {
            body: Vec::new(),
            done: Some(Done::Images { count, steps: None, pixels: task.size.map(Size::pixels) }),
            measured: together(answers.iter().map(|answer| &answer.body[..])),
            finish: Finish::Stop,
            output_bytes: 0,
            pictures,
            noticed: Noticed::default(),
        })
    }
}

/// Returns the member in which a provider of this shape takes the number of diffusion steps, if it does:
/// `automatic1111` always, others if the catalogue lists one of the names.
#[must_use]
pub fn steps_name(shape: &dyn Shape, abilities: &Abilities) -> Option<&'static str> {
    if shape.name() == "automatic1111" {
        return Some("steps");
    }
    ["num_inference_steps", "steps"].into_iter().find(|name| abilities.accepts(name))
}

fn task(ask: &Ask) -> Option<&Draw> {
    match &ask.task {
        Task::Draw(task) => Some(task),
        _ => None,
    }
}

impl Drawn {
    fn call(&self, task: &Draw, steps: Option<u32>, target: &Target<'_>, n: u32) -> Call {
        let mut head = b"{".to_vec();
        if self.voice != Voice::Batch {
            head.extend_from_slice(b"\"model\":");
            json::write_str(&mut head, target.model);
            head.push(b',');
        }
        head.extend_from_slice(b"\"prompt\":");
        let mut tail = match self.voice {
            Voice::Batch => format!(",\"batch_size\":{n}"),
            Voice::Size(..) | Voice::Sides => format!(",\"n\":{n}"),
        };
        if let Some(Size { width, height }) = task.size {
            tail += &match self.voice {
                Voice::Size(sign, _) => format!(",\"size\":\"{width}{sign}{height}\""),
                Voice::Sides | Voice::Batch => format!(",\"width\":{width},\"height\":{height}"),
            };
        }
        if let (Some(name), Some(steps)) = (steps_name(self, target.abilities), steps) {
            tail += &format!(",\"{name}\":{steps}");
        }
        let asks = matches!(self.voice, Voice::Sides | Voice::Size(_, true));
        if asks && target.says(Extra::MediaFormat) {
            tail += ",\"response_format\":\"b64_json\"";
        }
        tail.push('}');
        Call::json(vec![Bytes::from(head), task.prompt.clone(), Bytes::from(tail)])
    }
}
