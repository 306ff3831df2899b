//! Kinds of models.

/// Kind of model. A request of one kind is never sent to a model of another kind.
///
/// The rows of [`MODEL_KINDS`] hold the differences between the kinds; a new kind is a variant, a row, and the files of
/// its request and its adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ModelKind {
    /// Generates text from a conversation, in any dialect.
    Chat,
    /// Turns text into vectors.
    Embedding,
    /// Scores documents against a query.
    Rerank,
    /// Generates images.
    Image,
    /// Transcribes speech.
    Transcription,
    /// Turns text into speech.
    Speech,
    /// Classifies a text by the harm that it may do.
    Moderation,
}

/// Unit in which the work of a kind is counted, limited and sold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkUnit {
    /// Tokens read and generated, sold at the prices `input` and `output`.
    GeneratedTokens,
    /// Input tokens, sold at the price `input`.
    InputTokens,
    /// Generated images, sold at the price `image`.
    Images,
    /// Seconds of audio, sold at the price `minute`.
    AudioSeconds,
}

/// Formula for the energy of a kind of model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnergyFormula {
    /// Joules per token read and generated; the longer a prompt, the more joules each of its tokens takes.
    Generator,
    /// Joules per input token.
    Encoder,
    /// Joules per image.
    Images,
    /// Joules per second of audio.
    Audio,
}

/// Properties that distinguish one kind of model from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindSpec {
    /// Kind of model that the row describes.
    pub kind: ModelKind,
    /// Name in the configuration, logs and metrics.
    pub name: &'static str,
    /// Name in `_meta.type` of the catalogue.
    pub catalog_type: &'static str,
    /// Paths of all endpoints that answer requests to this kind. An error names them if a client requests a model of
    /// this kind at the endpoint of another kind.
    pub paths: &'static str,
    /// Scope that an API key needs for this kind.
    pub scope: &'static str,
    /// Usual input modality.
    pub input_modality: &'static str,
    /// Usual output modality.
    pub output_modality: &'static str,
    /// Parameters that requests may set if the configuration of a model lists none.
    pub parameters: &'static [&'static str],
    /// Unit in which the work of this kind is counted.
    pub unit: WorkUnit,
    /// Formula of the energy of an answer of this kind.
    pub energy_formula: EnergyFormula,
    /// Flavor of requests whose model id has no flavor.
    pub default_flavor: &'static str,
}

/// Parameters that engines of chat models (vLLM, SGLang, llama.cpp, TGI and hosted ones) usually accept.
const CHAT_PARAMETERS: &[&str] = &[
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "stop",
    "stream",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "logprobs",
    "top_logprobs",
];

/// All kinds of models, in the order of [`ModelKind`].
pub const MODEL_KINDS: &[KindSpec] = &[
    KindSpec {
        kind: ModelKind::Chat,
        name: "chat",
        catalog_type: "chat",
        paths: "/v1/chat/completions, /v1/completions, /v1/messages or /v1/responses",
        scope: "inference.chat",
        input_modality: "text",
        output_modality: "text",
        parameters: CHAT_PARAMETERS,
        unit: WorkUnit::GeneratedTokens,
        energy_formula: EnergyFormula::Generator,
        default_flavor: "balanced",
    },
    KindSpec {
        kind: ModelKind::Embedding,
        name: "embedding",
        catalog_type: "embeddings",
        paths: "/v1/embeddings",
        scope: "inference.embeddings",
        input_modality: "text",
        output_modality: "embeddings",
        parameters: &["encoding_format"],
        unit: WorkUnit::InputTokens,
        energy_formula: EnergyFormula::Encoder,
        default_flavor: "price",
    },
    KindSpec {
        kind: ModelKind::Rerank,
        name: "rerank",
        catalog_type: "rerank",
        paths: "/v1/rerank",
        scope: "inference.rerank",
        input_modality: "text",
        output_modality: "scores",
        parameters: &["top_n", "return_documents"],
        unit: WorkUnit::InputTokens,
        energy_formula: EnergyFormula::Encoder,
        default_flavor: "balanced",
    },
    KindSpec {
        kind: ModelKind::Image,
        name: "image",
        catalog_type: "image",
        paths: "/v1/images/generations",
        scope: "inference.images",
        input_modality: "text",
        output_modality: "image",
        parameters: &["n", "size", "response_format"],
        unit: WorkUnit::Images,
        energy_formula: EnergyFormula::Images,
        default_flavor: "balanced",
    },
    KindSpec {
        kind: ModelKind::Transcription,
        name: "transcription",
        catalog_type: "audio",
        paths: "/v1/audio/transcriptions",
        scope: "inference.audio",
        input_modality: "audio",
        output_modality: "text",
        parameters: &["language", "prompt", "response_format"],
        unit: WorkUnit::AudioSeconds,
        energy_formula: EnergyFormula::Audio,
        default_flavor: "balanced",
    },
    KindSpec {
        kind: ModelKind::Speech,
        name: "speech",
        catalog_type: "speech",
        paths: "/v1/audio/speech",
        scope: "inference.audio",
        input_modality: "text",
        output_modality: "audio",
        parameters: &["voice", "response_format", "speed", "instructions"],
        unit: WorkUnit::AudioSeconds,
        energy_formula: EnergyFormula::Audio,
        default_flavor: "balanced",
    },
    KindSpec {
        kind: ModelKind::Moderation,
        name: "moderation",
        catalog_type: "moderation",
        paths: "/v1/moderations",
        scope: "inference.chat",
        input_modality: "text",
        output_modality: "scores",
        parameters: &[],
        unit: WorkUnit::InputTokens,
        energy_formula: EnergyFormula::Encoder,
        default_flavor: "price",
    },
];

impl ModelKind {
    /// Names of all kinds, in their order.
    pub const NAMES: [&'static str; MODEL_KINDS.len()] = {
        let mut names = [""; MODEL_KINDS.len()];
        let mut at = 0;
        while at < MODEL_KINDS.len() {
            #[allow(clippy::indexing_slicing, reason = "in a constant: the compiler sees the bounds")]
            {
                names[at] = MODEL_KINDS[at].name;
            }
            at += 1;
        }
        names
    };

    /// Returns the row of the kind in the table of kinds.
    #[must_use]
    pub const fn spec(self) -> &'static KindSpec {
        // The index is valid: the test `rows_have_the_order_of_the_kinds` compares the table with the enum.
        #[allow(clippy::indexing_slicing, reason = "the table has a row for each variant")]
        &MODEL_KINDS[self as usize]
    }

    /// Returns the name in the configuration, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Returns the model kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        MODEL_KINDS.iter().find(|row| row.name == name).map(|row| row.kind)
    }

    /// Returns true for models that generate tokens.
    #[must_use]
    pub const fn generates_tokens(self) -> bool {
        matches!(self.spec().unit, WorkUnit::GeneratedTokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_order_of_the_kinds() {
        for (at, row) in MODEL_KINDS.iter().enumerate() {
            assert_eq!((row.kind as usize, row.kind.spec()), (at, row));
            assert_eq!(ModelKind::from_name(row.name), Some(row.kind));
        }
        assert_eq!(ModelKind::from_name("video"), None);
    }

    #[test]
    fn the_paths_of_a_chat_model_are_those_of_all_dialects() {
        let paths = ModelKind::Chat.spec().paths;
        for row in crate::dialect::DIALECTS {
            assert!(row.client_path_prefix.is_none_or(|path| paths.contains(path)), "{:?}", row.dialect);
        }
    }
}
