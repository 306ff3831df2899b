//! Generator and check of `docs/dialects.md`, which lists the translation of each field, with evidence from the golden
//! cases. A case may have a file `rows.txt`. Each of its lines is `field | treatment | result | evidence`. The evidence
//! is a text that the case's request or response must contain or, with `!` before it, must not contain.

use super::case_dirs;
use crate::test_support::assert_golden;
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "# Translation between dialects

A client and a provider can use different dialects. The gateway then translates the request and the response. The tables
list the translation of each field. The tables for a client and a provider of the same dialect list the fields that the
gateway changes or checks.

This page is generated from the files `rows.txt` in `plugins/dialect/testdata` and the texts in
`plugins/dialect/src/messages_to_chat/tests/fidelity.rs`; do not edit it. The last column is the golden test case that
shows the translation. The test `the_fidelity_table_matches_the_cases` compares the page with the cases. If
`PENSTOCK_BLESS` is set, the test rewrites the page.

| Treatment | Meaning |
|---|---|
| kept | forwarded unchanged, or translated to the exact equivalent; the result is the equivalent |
| changed | translated to the closest equivalent of the other dialect |
| left out | not forwarded; the result is the reason |
| refused | request: status 400; the result is the field that the error names in `param`. Response: failure of the provider, or an error event after the stream has started |
| made | added by the gateway |

An *offer* is one model at one provider. An offer lists a parameter if its `supported_parameters` contain the parameter.
Names such as `system_anywhere` and `replay_reasoning` are keys of the offer in the configuration. *Requested* means
that the client enabled `thinking` in its request.
";

const PAIRS: [(&str, &str); 8] = [
    ("messages_chat", "Messages client, chat-completions provider"),
    ("chat_messages", "Chat-completions client, messages provider"),
    ("messages_messages", "Messages client, messages provider"),
    ("responses_chat", "Responses client, chat-completions provider"),
    ("responses_messages", "Responses client, messages provider"),
    ("chat_responses", "Chat-completions client, responses provider"),
    ("messages_responses", "Messages client, responses provider"),
    ("responses_responses", "Responses client, responses provider"),
];

#[test]
fn the_fidelity_table_matches_the_cases() {
    let mut table = INTRODUCTION.to_owned();
    for (pair, title) in PAIRS {
        write!(table, "\n## {title}\n\n| Field | Treatment | Result | Case |\n|---|---|---|---|\n").unwrap();
        let mut rows = Vec::new();
        for case in case_dirs(pair) {
            let Ok(lines) = std::fs::read_to_string(case.join("rows.txt")) else { continue };
            let shown: String = ["sent.json", "answered.json", "answered.sse"]
                .iter()
                .filter_map(|name| std::fs::read_to_string(case.join(name)).ok())
                .collect();
            for line in lines.lines() {
                let parts: Vec<_> = line.split(" | ").collect();
                let [field, treatment, result, evidence] = parts[..] else {
                    panic!("{}: {line}", case.display())
                };
                assert!(["kept", "changed", "left out", "refused", "made"].contains(&treatment), "{line}");
                let holds = match evidence.strip_prefix('!') {
                    Some(absent) => !shown.contains(absent),
                    None => shown.contains(evidence),
                };
                assert!(holds, "{} does not show: {line}", case.display());
                let name = case.file_name().unwrap().to_string_lossy().into_owned();
                rows.push(format!("| {field} | {treatment} | {result} | {name} |\n"));
            }
        }
        rows.sort();
        assert!(rows.len() > 10, "rows of {pair}");
        table.extend(rows);
    }
    assert_golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dialects.md"), table.as_bytes());
}
