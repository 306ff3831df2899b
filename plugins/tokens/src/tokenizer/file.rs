//! Parser of `tokenizer.json`.

use super::added_tokens::{AddedToken, AddedTokens};
use super::bpe::{self, BpeModel};
use super::normalize::{NormalizerStep, TextNormalizer};
use super::pretokenize::{MatchTreatment, PrependScheme, PretokenizerStep};
use super::unigram::{self, UnigramModel};
use super::{FileTokenizer, TokenizerModel};
use crate::pretokenizer_regex::SplitPattern;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// Pattern of GPT-2, the default of `ByteLevel`.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

#[derive(serde::Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedTokenEntry>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    model: ModelEntry,
}

#[derive(serde::Deserialize)]
struct AddedTokenEntry {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
}

#[derive(serde::Deserialize)]
#[serde(expecting = "an object")]
struct ModelEntry {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: VocabularyEntries,
    #[serde(default)]
    merges: Vec<MergePair>,
    unk_token: Option<String>,
    unk_id: Option<usize>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    dropout: Option<f64>,
}

enum VocabularyEntries {
    Numbers(Vec<(String, u32)>),
    Scores(Vec<(String, f64)>),
}

struct MergePair(String, String);

/// Parses a `tokenizer.json`, or returns the parse error or the unsupported part.
pub(super) fn parse_tokenizer_json(json: &[u8]) -> Result<FileTokenizer, String> {
    let file: TokenizerFile =
        serde_json::from_slice(json).map_err(|error| format!("does not parse ({error})"))?;
    let normalizer = normalizer(&file.normalizer)?;
    let mut cuts = Vec::new();
    let byte_level = pre_tokenizer(&file.pre_tokenizer, &mut cuts)?;
    let model = model(file.model, byte_level)?;
    let (mut raw, mut normalized) = (Vec::new(), Vec::new());
    for AddedTokenEntry { content, single_word, lstrip, rstrip, normalized: is_normalized } in
        file.added_tokens
    {
        if is_normalized {
            let content = normalizer.normalize(&content).into_owned();
            normalized.push(AddedToken { content, single_word, lstrip, rstrip });
        } else {
            raw.push(AddedToken { content, single_word, lstrip, rstrip });
        }
    }
    let added = AddedTokens::new(raw, normalized)?;
    Ok(FileTokenizer { added, normalizer, cuts, model, special_token_count: around(&file.post_processor) })
}

fn model(file: ModelEntry, byte_level: bool) -> Result<TokenizerModel, String> {
    let unsupported = |what: &str| Err(format!("the model's {what} is not supported"));
    if [&file.continuing_subword_prefix, &file.end_of_word_suffix]
        .iter()
        .any(|part| part.as_ref().is_some_and(|s| !s.is_empty()))
    {
        return unsupported("word prefix or suffix");
    }
    if file.dropout.is_some_and(|dropout| dropout > 0.0) {
        return unsupported("dropout");
    }
    match (file.kind.as_deref(), file.vocab) {
        (Some("BPE") | None, VocabularyEntries::Numbers(tokens)) => {
            let parts = bpe::BpeParams {
                tokens,
                merges: file.merges.into_iter().map(|MergePair(left, right)| (left, right)).collect(),
                unknown: file.unk_token,
                fuse_unknown: file.fuse_unk,
                byte_fallback: file.byte_fallback,
                ignore_merges: file.ignore_merges,
                byte_level,
            };
            Ok(TokenizerModel::Bpe(Box::new(BpeModel::new(parts)?)))
        }
        (Some("Unigram") | None, VocabularyEntries::Scores(tokens)) if !byte_level => {
            let parts =
                unigram::UnigramParams { tokens, unknown: file.unk_id, byte_fallback: file.byte_fallback };
            Ok(TokenizerModel::Unigram(Box::new(UnigramModel::new(parts)?)))
        }
        (kind, _) => unsupported(&format!("type {}", kind.unwrap_or("(none)"))),
    }
}

fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("(none)")
}

fn flag(value: &Value, name: &str, default: bool) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(default)
}

fn text<'v>(value: &'v Value, name: &str) -> Result<&'v str, String> {
    value.get(name).and_then(Value::as_str).ok_or_else(|| format!("{} lacks {name}", kind(value)))
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn normalizer(value: &Value) -> Result<TextNormalizer, String> {
    let mut steps = Vec::new();
    collect_steps(value, &mut steps)?;
    Ok(TextNormalizer(steps))
}

fn collect_steps(value: &Value, steps: &mut Vec<NormalizerStep>) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    steps.push(match kind(value) {
        "Sequence" => {
            return list(value, "normalizers").iter().try_for_each(|step| collect_steps(step, steps));
        }
        "NFC" => NormalizerStep::Nfc,
        "NFD" => NormalizerStep::Nfd,
        "NFKC" => NormalizerStep::Nfkc,
        "NFKD" => NormalizerStep::Nfkd,
        "Lowercase" => NormalizerStep::Lowercase,
        "StripAccents" => NormalizerStep::StripAccents,
        "Strip" => NormalizerStep::Strip {
            left: flag(value, "strip_left", true),
            right: flag(value, "strip_right", true),
        },
        "Prepend" => NormalizerStep::Prepend(text(value, "prepend")?.to_owned()),
        "Replace" => replace(value)?,
        other => return Err(format!("the normalizer {other} is not supported")),
    });
    Ok(())
}

fn replace(value: &Value) -> Result<NormalizerStep, String> {
    let to = text(value, "content")?.to_owned();
    let pattern = value.get("pattern").cloned().unwrap_or_default();
    Ok(match pattern.get("String").and_then(Value::as_str) {
        Some(from) => NormalizerStep::ReplaceText(from.to_owned(), to),
        None => NormalizerStep::ReplacePattern(compile_pattern(&pattern)?, to),
    })
}

fn compile_pattern(pattern: &Value) -> Result<SplitPattern, String> {
    if let Some(literal) = pattern.get("String").and_then(Value::as_str) {
        return SplitPattern::from_literal(literal);
    }
    let regex =
        pattern.get("Regex").and_then(Value::as_str).ok_or("a pattern is neither String nor Regex")?;
    SplitPattern::new(regex).map_err(|error| format!("a pattern does not compile ({error})"))
}

/// Adds the steps of a pre-tokenizer; returns true if one of them converts the words to the byte alphabet.
fn pre_tokenizer(value: &Value, cuts: &mut Vec<PretokenizerStep>) -> Result<bool, String> {
    if value.is_null() {
        return Ok(false);
    }
    cuts.push(match kind(value) {
        "Sequence" => return sequence(list(value, "pretokenizers"), cuts),
        "ByteLevel" => return byte_level(value, cuts),
        "Split" => {
            let pattern = compile_pattern(value.get("pattern").unwrap_or(&Value::Null))?;
            PretokenizerStep::Split { pattern, keep: keep(value)?, invert: flag(value, "invert", false) }
        }
        "Metaspace" => metaspace(value)?,
        "Digits" if flag(value, "individual_digits", false) => {
            PretokenizerStep::SplitAtCharacters { test: char::is_numeric, keep: MatchTreatment::Isolated }
        }
        "Digits" => {
            PretokenizerStep::SplitAtCharacters { test: char::is_numeric, keep: MatchTreatment::Contiguous }
        }
        "Punctuation" => PretokenizerStep::Split {
            pattern: SplitPattern::new(r"[\p{P}!-/:-@\[-`{-~]")?,
            keep: keep(value)?,
            invert: false,
        },
        "WhitespaceSplit" => {
            PretokenizerStep::SplitAtCharacters { test: char::is_whitespace, keep: MatchTreatment::Removed }
        }
        "Whitespace" => PretokenizerStep::Split {
            pattern: SplitPattern::new(r"\w+|[^\w\s]+")?,
            keep: MatchTreatment::Removed,
            invert: true,
        },
        other => return Err(format!("the pre_tokenizer {other} is not supported")),
    });
    Ok(false)
}

fn sequence(steps: &[Value], cuts: &mut Vec<PretokenizerStep>) -> Result<bool, String> {
    let mut bytes = false;
    for step in steps {
        if bytes {
            return Err("a pre_tokenizer after ByteLevel is not supported".to_owned());
        }
        bytes = pre_tokenizer(step, cuts)?;
    }
    Ok(bytes)
}

fn byte_level(value: &Value, cuts: &mut Vec<PretokenizerStep>) -> Result<bool, String> {
    if flag(value, "add_prefix_space", true) {
        cuts.push(PretokenizerStep::PrefixSpace);
    }
    if flag(value, "use_regex", true) {
        cuts.push(PretokenizerStep::Split {
            pattern: SplitPattern::new(GPT2)?,
            keep: MatchTreatment::Isolated,
            invert: false,
        });
    }
    Ok(true)
}

fn metaspace(value: &Value) -> Result<PretokenizerStep, String> {
    let mark = text(value, "replacement")?.chars().next().ok_or("Metaspace lacks replacement")?;
    let prepend = match value.get("prepend_scheme").and_then(Value::as_str) {
        Some("never") => PrependScheme::Never,
        Some("first") => PrependScheme::First,
        Some(_) => PrependScheme::Always,
        // Files written before 2024 have the flag `add_prefix_space` instead of `prepend_scheme`.
        None if flag(value, "add_prefix_space", true) => PrependScheme::Always,
        None => PrependScheme::Never,
    };
    Ok(PretokenizerStep::Metaspace { mark, prepend, split: flag(value, "split", true) })
}

fn keep(value: &Value) -> Result<MatchTreatment, String> {
    match value.get("behavior").and_then(Value::as_str) {
        Some("Isolated") | None => Ok(MatchTreatment::Isolated),
        Some("Removed") => Ok(MatchTreatment::Removed),
        Some("MergedWithPrevious") => Ok(MatchTreatment::WithPrevious),
        Some("MergedWithNext") => Ok(MatchTreatment::WithNext),
        Some("Contiguous") => Ok(MatchTreatment::Contiguous),
        Some(other) => Err(format!("the behavior {other} is not supported")),
    }
}

/// Returns the number of special tokens that a post-processor adds around one text.
fn around(value: &Value) -> u64 {
    match kind(value) {
        "Sequence" => list(value, "processors").iter().map(around).sum(),
        "TemplateProcessing" => {
            list(value, "single").iter().filter(|part| part.get("SpecialToken").is_some()).count() as u64
        }
        "BertProcessing" | "RobertaProcessing" => 2,
        _ => 0,
    }
}

impl<'de> Deserialize<'de> for VocabularyEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;
        impl<'de> Visitor<'de> for Tokens {
            type Value = VocabularyEntries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a vocabulary: an object of numbers or a list of scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabularyEntries, A::Error> {
                let mut tokens = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    tokens.push(entry);
                }
                Ok(VocabularyEntries::Numbers(tokens))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<VocabularyEntries, A::Error> {
                let mut tokens = Vec::new();
                while let Some(entry) = list.next_element()? {
                    tokens.push(entry);
                }
                Ok(VocabularyEntries::Scores(tokens))
            }
        }
        deserializer.deserialize_any(Tokens)
    }
}

impl<'de> Deserialize<'de> for MergePair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = MergePair;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: two tokens, in a list or with a space between them")
            }

            fn visit_str<E: Error>(self, pair: &str) -> Result<MergePair, E> {
                let (left, right) =
                    pair.split_once(' ').ok_or_else(|| E::custom("a merge needs two tokens"))?;
                Ok(MergePair(left.to_owned(), right.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MergePair, A::Error> {
                match (list.next_element()?, list.next_element()?) {
                    (Some(left), Some(right)) => Ok(MergePair(left, right)),
                    _ => Err(A::Error::custom("a merge needs two tokens")),
                }
            }
        }
        deserializer.deserialize_any(Pair)
    }
}
