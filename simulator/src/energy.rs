//! Simulated energy measurements, in the formats of several vendors.

use super::fault::EnergyShape;
use serde_json::{Value, json};

/// Part of an answer that reports measured energy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EnergyReport {
    /// Member to add to the last JSON object: name and value.
    Member(&'static str, Value),
    /// SSE comment to send before the end of a stream.
    Comment(String),
}

/// Returns a measured energy in the format of this vendor, for a stream or a plain answer.
pub(super) fn energy_report(shape: EnergyShape, joules: f64, stream: bool) -> EnergyReport {
    match shape {
        EnergyShape::Greenpt => EnergyReport::Member(
            "impact",
            json!({
                "version": "20250922",
                "inferenceTime": { "total": 156, "unit": "ms" },
                "energy": { "total": (joules * 1000.0).round() as u64, "unit": "Wms" },
                "emissions": { "total": 1, "unit": "ugCO2e" },
            }),
        ),
        EnergyShape::Neuralwatt if stream => EnergyReport::Comment(format!("energy {}", object(joules))),
        EnergyShape::Neuralwatt | EnergyShape::Root => EnergyReport::Member("energy", object(joules)),
    }
}

fn object(joules: f64) -> Value {
    json!({
        "energy_joules": joules,
        "energy_kwh": joules / 3.6e6,
        "avg_power_watts": 312.5,
        "duration_seconds": joules / 312.5,
        "attribution_method": "simulated",
        "attribution_ratio": 0.25,
    })
}

/// Appends a member to the text of a JSON object.
pub(super) fn append_member(object: &mut String, name: &str, value: &Value) {
    if object.pop() == Some('}') {
        object.push_str(&format!(",\"{name}\":{value}}}"));
    }
}
