//! Generator and check of `docs/dialects.md`, which lists the translation of each field as the golden cases show it. A
//! case may have `rows.txt`; each line is `field | fate | what becomes of it | evidence`. The evidence is a text that
//! the case's request or answer must contain or, with `!` before it, must not contain.

use super::case_dirs;
use crate::test_support::assert_golden;
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "# How fields are translated\n\n\
Generated from the golden cases in `plugins/dialect/testdata`; do not edit. Each row is shown by the case it \
names: the test `the_fidelity_table_matches_the_cases` fails when the table and the cases differ, and \
rewrites the table when `PENSTOCK_BLESS` is set.\n\n\
*kept*: passed on as it is, or as its exact counterpart. *changed*: expressed as closely as the other dialect \
allows. *left out*: has no influence on the answer, or is advice that the other dialect cannot take. *refused*: a \
request is answered with 400 and the field's name; a provider's answer counts as failed. *made*: added by the \
gateway.\n";

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
        write!(table, "\n## {title}\n\n| Field | Fate | What becomes of it | Case |\n|---|---|---|---|\n")
            .unwrap();
        let mut rows = Vec::new();
        for case in case_dirs(pair) {
            let Ok(lines) = std::fs::read_to_string(case.join("rows.txt")) else { continue };
            let shown: String = ["sent.json", "answered.json", "answered.sse"]
                .iter()
                .filter_map(|name| std::fs::read_to_string(case.join(name)).ok())
                .collect();
            for line in lines.lines() {
                let parts: Vec<_> = line.split(" | ").collect();
                let [field, fate, becomes, evidence] = parts[..] else {
                    panic!("{}: {line}", case.display())
                };
                assert!(["kept", "changed", "left out", "refused", "made"].contains(&fate), "{line}");
                let holds = match evidence.strip_prefix('!') {
                    Some(absent) => !shown.contains(absent),
                    None => shown.contains(evidence),
                };
                assert!(holds, "{} does not show: {line}", case.display());
                let name = case.file_name().unwrap().to_string_lossy().into_owned();
                rows.push(format!("| {field} | {fate} | {becomes} | {name} |\n"));
            }
        }
        rows.sort();
        assert!(rows.len() > 10, "the rows of {pair} are there");
        table.extend(rows);
    }
    assert_golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dialects.md"), table.as_bytes());
}
