//! Cuts recordings at many bytes, in `.ci/slow-tests` at every byte: no prefix has a call that the whole body does not have.

use std::collections::BTreeMap;
use std::time::Instant;

use sabir_call::{DraftCall, DraftPart, DraftResponse, DraftState};
use sabir_wire::{BodyEnd, DecodeReport, ResponseDecoder, Wire};

use crate::case_count::sampled_positions;
use crate::corpus::{Recording, recordings};

/// The number of recordings that are cut: the shortest of each wire and kind, then the shortest of
/// all.
const COUNT: usize = 60;

/// The number of recordings of each wire and kind, if they have at most [`MAX_RECORDING_BYTES`]
/// bytes: the work is quadratic in the length.
const EACH: usize = 2;
const MAX_RECORDING_BYTES: usize = 8_000;

/// The features of a recording that a cut can damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Words,
    Thoughts,
    Calls,
    Errors,
}

struct Whole<'a> {
    id: u64,
    wire: Wire,
    body: &'a [u8],
    draft: DraftResponse,
}

#[test]
fn no_cut_of_a_recording_completes_a_call() {
    let Some(recordings) = recordings() else {
        return crate::skipped("no recordings beside the workspace");
    };
    let begin = Instant::now();
    let chosen = chosen(&recordings);
    let (mut cuts, mut kinds) = (0, BTreeMap::<String, usize>::new());
    for (kind, whole) in &chosen {
        *kinds.entry(format!("{} {kind:?}", whole.wire)).or_default() += 1;
        grows(whole);
        for cut in sampled_positions(0, whole.body.len(), 4) {
            let mut draft = DraftResponse::default();
            let mut decoder = ResponseDecoder::new(whole.wire);
            decoder.push(&whole.body[..cut], &mut draft);
            decoder.finish(BodyEnd::Clean, &mut draft);
            assert!(
                !draft.has_open_calls(),
                "recording {} cut at {cut}: a call was neither ended nor cut",
                whole.id
            );
            check(whole, &draft, cut);
            cuts += 1;
        }
    }
    eprintln!(
        "{} recordings, {cuts} cuts, {:?}: {kinds:?}",
        chosen.len(),
        begin.elapsed()
    );
    assert!(chosen.len() >= COUNT);
    for wire in Wire::ALL
        .iter()
        .filter(|wire| recordings.iter().any(|known| known.wire == wire.name()))
    {
        assert!(
            chosen.iter().any(|(_, whole)| whole.wire == *wire),
            "no recording of {wire} was cut"
        );
    }
}

/// Selects the recordings to cut.
fn chosen(recordings: &[Recording]) -> Vec<(Kind, Whole<'_>)> {
    let mut by_length: Vec<&Recording> = recordings.iter().collect();
    by_length.sort_by_key(|recording| recording.body.len());
    let mut counts = BTreeMap::new();
    let mut chosen = Vec::new();
    let mut others = Vec::new();
    for Recording { id, wire, body, .. } in by_length {
        let Some(wire) = Wire::from_name(wire) else {
            continue;
        };
        let mut draft = DraftResponse::default();
        let mut decoder = ResponseDecoder::new(wire);
        decoder.push(body, &mut draft);
        let report = decoder.finish(BodyEnd::Clean, &mut draft);
        let kind = kind(&draft, &report);
        let count = counts.entry((wire.name(), kind)).or_insert(0);
        *count += 1;
        let list = if *count <= EACH && body.len() <= MAX_RECORDING_BYTES {
            &mut chosen
        } else {
            &mut others
        };
        list.push((
            kind,
            Whole {
                id: *id,
                wire,
                body,
                draft,
            },
        ));
    }
    let missing = COUNT.saturating_sub(chosen.len());
    chosen.extend(others.into_iter().take(missing));
    chosen
}

fn kind(draft: &DraftResponse, report: &DecodeReport) -> Kind {
    if report.error.is_some() {
        Kind::Errors
    } else if draft.calls().next().is_some() {
        Kind::Calls
    } else if draft
        .parts
        .iter()
        .any(|part| matches!(part, DraftPart::Thought(_)))
    {
        Kind::Thoughts
    } else {
        Kind::Words
    }
}

/// Feeds a body byte by byte, without an end: a closed call stays closed.
fn grows(whole: &Whole<'_>) {
    let mut draft = DraftResponse::default();
    let mut decoder = ResponseDecoder::new(whole.wire);
    for (at, byte) in whole.body.iter().enumerate() {
        decoder.push(&[*byte], &mut draft);
        check(whole, &draft, at + 1);
    }
}

fn check(whole: &Whole<'_>, part: &DraftResponse, cut: usize) {
    let id = whole.id;
    for call in part.calls().filter(|call| call.state == DraftState::Closed) {
        let known = whole
            .draft
            .call_by_index(call.index)
            .filter(|known| known.state == DraftState::Closed);
        assert_eq!(
            Some(essence(call)),
            known.map(essence),
            "recording {id} cut at {cut}: a closed call is the whole one"
        );
    }
    assert!(
        whole.draft.text().starts_with(&part.text()),
        "recording {id} cut at {cut}: text"
    );
    assert!(
        thoughts(&whole.draft).starts_with(&thoughts(part)),
        "recording {id} cut at {cut}: thoughts"
    );
}

fn essence(call: &DraftCall) -> String {
    format!("{:?} {} {:?}", call.id, call.name, call.arguments)
}

fn thoughts(draft: &DraftResponse) -> String {
    let thoughts = draft.parts.iter().filter_map(|part| match part {
        DraftPart::Thought(text) => Some(text.as_str()),
        _ => None,
    });
    thoughts.collect()
}
